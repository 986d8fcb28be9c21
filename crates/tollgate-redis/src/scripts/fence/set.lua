-- KEYS[1] gets the value ARGV[1].
return redis.call('SET', KEYS[1], ARGV[1])

-- The field ARGV[1] of KEYS[1] gets the value ARGV[2].
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])

-- The mark KEYS[1]; nothing if there is none.
return redis.call('GET', KEYS[1])

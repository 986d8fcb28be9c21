-- KEYS[1] is deleted; 1 if it was there.
return redis.call('DEL', KEYS[1])

-- Gives the lock back on this node. Also on one that does not vote: it may have kept the key.
--
-- KEYS: 1 lock. ARGV: 1 owner. Answers 1, or 0 if it was not the owner's.

local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 32) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0

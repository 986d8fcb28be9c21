-- Gives the lock back on this node. Also on one that does not vote: it may have kept the key.
--
-- KEYS: 1 lock. ARGV: 1 owner. Answers 1, or 0 if it was not the owner's.

if redis.call('GETRANGE', KEYS[1], '0', '31') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0

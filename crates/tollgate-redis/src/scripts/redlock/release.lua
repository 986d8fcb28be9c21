-- Gives the lock back on this node. Also on one that is recovering, which has no vote but may have kept the key.
--
-- KEYS: 1 lock, 2 member. ARGV: 1 owner, 2 run id. Answers "1", "0" if it was not the owner's, or "R".

local v = redis.call('MGET', KEYS[1], KEYS[2])
local mine = v[1] and string.sub(v[1], 1, 32) == ARGV[1]
if mine then
  redis.call('DEL', KEYS[1])
end
if not v[2] or string.sub(v[2], 1, #ARGV[2]) ~= ARGV[2] then
  return 'R'
end
return mine and '1' or '0'

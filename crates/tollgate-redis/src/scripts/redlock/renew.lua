-- Renews a grant on this node, and brings the node to its token if it has another.
--
-- KEYS: 1 lock, 2 fence, 3 revoked, 4 member. ARGV: 1 owner, 2 token, 3 ttl in ms, 4 details, or "" to leave them
-- Answers "1", "0" if the grant is gone, "V" if it was revoked, or "R".

local v = redis.call('MGET', KEYS[1], KEYS[4], KEYS[3])
if not v[2] then
  return 'R'
end
if v[3] == ARGV[1] then
  return 'V'
end
if not v[1] or string.sub(v[1], 1, 32) ~= ARGV[1] then
  return '0'
end
local sent, details = string.match(v[1], '^%x+ ~?%d+ (%d+) (.*)$')
-- What the holder said later may have come before.
local function revision(said)
  return tonumber(string.match(said, '"revision":(%d+)') or 0)
end
if ARGV[4] ~= '' and revision(ARGV[4]) >= revision(details) then
  details = ARGV[4]
end
-- First what Redis does also when it is out of memory: after that it allows the rest.
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. sent .. ' ' .. details, 'PX', ARGV[3])
redis.call('ZADD', KEYS[2], 'GT', ARGV[2], 'f')
-- A lock that is held for weeks must not forget its counter.
redis.call('EXPIRE', KEYS[2], '608400')
return '1'

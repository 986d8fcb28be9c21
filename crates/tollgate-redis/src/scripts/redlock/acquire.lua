-- Takes the lock on this node, with a token of this node's own. The layout is explained in redlock/mod.rs.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 owner, 2 hint, 3 ttl in ms, 4 sent, 5 details, 6 run id
-- Answers "O<token>", "O<token> <sent>" if the owner had it already, "B<pttl>" or "R".

local v = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local member = v[3]
if not member or string.sub(member, 1, #ARGV[6]) ~= ARGV[6] then
  return 'R'
end
if v[1] then
  if string.sub(v[1], 1, 32) == ARGV[1] then
    -- Asked again: what was said the first time, and from when its life counts.
    local token, sent = string.match(v[1], '^%x+ (%d+) (%d+)')
    return 'O' .. token .. ' ' .. sent
  end
  return 'B' .. redis.call('PTTL', KEYS[1])
end
-- The hint lines the nodes' counters up. A client whose clock is wrong must not drag them far into the future.
local time = redis.call('TIME')
local hint = math.min(tonumber(ARGV[2]), (time[1] + 60) * 1000000 + time[2])
local token = string.format('%.0f',
  math.max(tonumber(v[2] or 0), tonumber(string.match(member, ' (%d+) ')), hint) + 1)
-- NX: MGET does not see a key that is no string.
if not redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. token .. ' ' .. ARGV[4] .. ' ' .. ARGV[5], 'PX', ARGV[3], 'NX') then
  return 'B' .. redis.call('PTTL', KEYS[1])
end
redis.call('SET', KEYS[2], token, 'EX', 604800)
return 'O' .. token

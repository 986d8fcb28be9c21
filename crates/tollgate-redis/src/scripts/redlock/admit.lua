-- Makes this node a voter of its present run, with tokens above G. Only by whoever has the node's mutex key. G never falls,
-- whoever comes late.
--
-- KEYS: 1 record, 2 mutex, 3 member. ARGV: 1 who has the mutex, 2 run id, 3 G, 4 max ttl in ms
-- Answers "1", or "0" without the mutex.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return '0'
end
local v = redis.call('MGET', KEYS[1], KEYS[3])
local run, before = string.match(v[1] or '', '^(%S+) (%d+) ')
local g = string.format('%.0f', math.max(tonumber(ARGV[3]), tonumber(before or 0), tonumber(v[2] or 0)))
if run and run ~= ARGV[2] then
  redis.call('DEL', 'tollgate:member:' .. run)
end
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. g .. ' ' .. ARGV[4])
redis.call('SET', KEYS[3], g)
-- Whatever it forgets from now on, it forgets anew.
redis.call('DEL', 'tollgate:empty')
return '1'

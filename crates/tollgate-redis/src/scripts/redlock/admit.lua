-- Makes this node a voter of its present run, with tokens above G. Only by whoever has the node's mutex key.
--
-- KEYS: 1 member, 2 mutex. ARGV: 1 who has the mutex, 2 run id, 3 G, 4 max ttl in ms. Answers "1", or "0" without the mutex.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return '0'
end
local before = redis.call('GET', KEYS[1])
local g = math.max(tonumber(ARGV[3]), tonumber(before and string.match(before, ' (%d+) ') or 0))
redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. string.format('%.0f', g) .. ' ' .. ARGV[4])
return '1'

-- Since when somebody has known that this node has forgotten everything, without having been restarted perhaps. Begins to
-- count at the first call.
--
-- KEYS: 1 record, 2 the mark. ARGV: 1 run id. Answers the age in ms, or "-" for a node that remembers what it was.

if redis.call('EXISTS', KEYS[1]) == 1 then
  return '-'
end
local week = 604800000
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  redis.call('SET', KEYS[2], ARGV[1], 'PX', week)
end
return string.format('%.0f', week - redis.call('PTTL', KEYS[2]))

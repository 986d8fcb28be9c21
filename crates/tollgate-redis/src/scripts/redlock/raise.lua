-- Raises G on a node that votes.
--
-- KEYS: 1 member. ARGV: 1 G, 2 run id. Answers "1" or "R".

local member = redis.call('GET', KEYS[1])
if not member or string.sub(member, 1, #ARGV[2]) ~= ARGV[2] then
  return 'R'
end
local g, max_ttl = string.match(member, ' (%d+) (%d+)$')
if tonumber(g) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[1] .. ' ' .. max_ttl)
end
return '1'

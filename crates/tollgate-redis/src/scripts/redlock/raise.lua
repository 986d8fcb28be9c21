-- Raises G on a node that votes.
--
-- KEYS: 1 record, 2 member. ARGV: 1 G, 2 run id, 3 max ttl in ms. Answers "1" or "R".

local g = redis.call('GET', KEYS[2])
if not g then
  return 'R'
end
if tonumber(g) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[2] .. ' ' .. ARGV[1] .. ' ' .. ARGV[3])
  redis.call('SET', KEYS[2], ARGV[1])
end
return '1'

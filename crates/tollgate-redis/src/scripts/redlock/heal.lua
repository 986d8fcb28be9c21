-- Gives a grant that a majority has just renewed to this node, too, if nobody has the lock here. It counts from the next
-- renewal on.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 the lock's value elsewhere, 2 token, 3 what is left in ms
-- Answers "1", "0" if somebody has it, or "R".

local v = redis.call('MGET', KEYS[2], KEYS[3])
if not v[2] then
  return 'R'
end
if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3], 'NX') then
  return '0'
end
redis.call('SET', KEYS[2], string.format('%.0f', math.max(tonumber(v[1] or 0), tonumber(ARGV[2]))), 'EX', '604800')
return '1'

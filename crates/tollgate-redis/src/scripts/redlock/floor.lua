-- Makes every later token of a lock larger than a number.
--
-- KEYS: 1 fence, 2 member. ARGV: 1 the number. Answers "1" or "R".

local v = redis.call('MGET', KEYS[1], KEYS[2])
if not v[2] then
  return 'R'
end
if tonumber(v[1] or 0) < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'EX', '604800')
end
return '1'

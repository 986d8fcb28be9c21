-- Makes every later token of a lock larger than a number, as a move from another engine needs it.
--
-- ARGV: 1 the number

local before = tonumber(redis.call('GET', FENCE) or '0')
if before < tonumber(ARGV[1]) then
  redis.call('SET', FENCE, ARGV[1], 'EX', REMEMBERED)
end
return 1

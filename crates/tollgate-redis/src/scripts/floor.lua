-- Makes every later token of a lock larger than a number, as a move from another engine needs it.
--
-- ARGV: 1 the number

local before = redis.call('GET', FENCE) or '0'
if tonumber(string.match(before, '^%d+')) < tonumber(ARGV[1]) then
  remember(ARGV[1], string.match(before, '%+$') or '')
end
return 1

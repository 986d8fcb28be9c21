-- Makes every later token of a lock larger than a number.
--
-- KEYS: 1 fence, 2 member. ARGV: 1 the number. Answers "1" or "R".

if redis.call('EXISTS', KEYS[2]) == 0 then
  return 'R'
end
redis.call('ZADD', KEYS[1], 'GT', ARGV[1], 'f')
redis.call('EXPIRE', KEYS[1], '608400')
return '1'

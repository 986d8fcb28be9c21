-- Makes every later token of a lock larger than a number, as a move from another engine needs it.
--
-- ARGV: 1 the number

redis.call('ZADD', FENCE, 'GT', ARGV[1], 'f')
remember(0)
return 1

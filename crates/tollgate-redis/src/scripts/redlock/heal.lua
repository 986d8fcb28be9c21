-- Gives a grant that a majority has just renewed to this node, too, if nobody has the lock here. It counts from the next
-- renewal on.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 the lock's value elsewhere, 2 token, 3 what is left in ms
-- Answers "1", "0" if somebody has it, or "R".

if redis.call('EXISTS', KEYS[3]) == 0 then
  return 'R'
end
if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3], 'NX') then
  return '0'
end
redis.call('ZADD', KEYS[2], 'GT', ARGV[2], 'f')
redis.call('EXPIRE', KEYS[2], '608400')
return '1'

-- Marks the owner's lock on this node as revoked: from here on it is not renewed here.
--
-- KEYS: 1 lock, 2 revoked, 3 member. ARGV: 1 owner. Answers "1", "0" if the owner has no lock here, or "R".

if redis.call('EXISTS', KEYS[3]) == 0 then
  return 'R'
end
if redis.call('GETRANGE', KEYS[1], '0', '31') ~= ARGV[1] then
  return '0'
end
-- The mark outlives what it marks, and the holder's next renewal.
local left = math.max(redis.call('PTTL', KEYS[1]), 0)
redis.call('SET', KEYS[2], ARGV[1], 'PX', string.format('%.0f', 2 * left + 1000))
return '1'

-- Takes back on this node what a claim's attempts took that were made by a given moment. A later attempt of the same
-- claim is left alone: this may arrive behind it, over another connection.
--
-- KEYS: 1 lock. ARGV: 1 owner, 2 the moment, on the clock by which attempts say when they were sent. Answers 1, or 0 if
-- there was nothing.

local value = redis.call('GET', KEYS[1])
if value and string.sub(value, 1, 32) == ARGV[1] then
  local sent = tonumber(string.match(value, '^%x+ ~?%d+ (%d+)') or 0)
  if sent <= tonumber(ARGV[2]) then
    return redis.call('DEL', KEYS[1])
  end
end
return 0

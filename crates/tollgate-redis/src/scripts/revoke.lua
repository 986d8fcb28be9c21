-- Breaks the lock of the holder with a token.
--
-- ARGV: 1 token. Answers 1, or 0 if nobody holds the lock with it.

local r = inside_alone()
if not (r and r.token == ARGV[1]) then
  r = nil
  local records = redis.call('HGETALL', HOLDERS)
  for i = 2, #records, 2 do
    local other = unpack_record(records[i])
    if other and other.token == ARGV[1] and other.ends > now then
      r = other
    end
  end
end
if not r then
  return 0
end
expel(r)
return 1

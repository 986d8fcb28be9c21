-- Breaks the lock of the holder with a token: asks it to leave, or takes the lock away.
--
-- ARGV: 1 token, 2 whether the lock is taken away at once (1 or 0). Answers 0 if nobody holds the lock with that token, 1 if it
-- was taken away, 2 if its holder is asked to leave.

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
-- The holder finds itself here when it renews. Where memory is short, a lock can be taken away all the same.
local marked = redis.pcall('SADD', REVOKED, r.owner)
if type(marked) == 'table' and marked.err and ARGV[2] == '0' then
  return marked
end
redis.pcall('PEXPIRE', REVOKED, number(math.max(redis.call('PTTL', REVOKED), 2 * tonumber(r.ttl))))
redis.pcall('PUBLISH', string.match(r.rest, '^%S+ (%S+)'), r.owner .. ' revoked')
if ARGV[2] == '0' then
  return 2
end
expel(r)
return 1

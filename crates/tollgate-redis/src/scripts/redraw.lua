-- Gives a holder, who took the lock with a token that was not larger than all before, one that is.
--
-- ARGV: 1 owner. Answers "granted TOKEN SENT NOW", or nothing if it does not hold the lock.

local r = holder(ARGV[1])
if not r then
  return false
end
r.token = draw()
if not r.token then
  return no_tokens()
end
remember(0)
write_holder(r, r.ends > 0 and r.ends - now or redis.call('PTTL', LOCK))
return granted(r)

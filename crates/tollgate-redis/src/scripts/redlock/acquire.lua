-- Takes the lock on this node, with a token of this node's own. The layout is explained in redlock/mod.rs.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 owner, 2 hint, 3 ttl in ms, 4 " <sent> <details>"
-- Answers "<token>", "O<token> <sent>" if the owner had it already, "U" if it took it without a script, "B<pttl>" or "R",
-- or fails with NOTOKENS if the counter is at its end.

local call, owner, token = redis.call, ARGV[1], ARGV[2]
local g = call('GET', KEYS[3])
if not g then
  return 'R'
end
local value = call('GET', KEYS[1])
if value then
  if string.sub(value, 1, 32) == owner then
    -- Asked again: what was said the first time, and from when its life counts. Not of a lock that was taken without a
    -- script: its token may have been refused.
    local given, sent = string.match(value, '^%x+ (%d+) (%d+)')
    return given and 'O' .. given .. ' ' .. sent or 'U'
  end
  return 'B' .. call('PTTL', KEYS[1])
end
local last = tonumber(call('ZSCORE', KEYS[2], 'f') or 0)
if last >= 9007199254740991 then
  return redis.error_reply('NOTOKENS ' .. KEYS[2])
end
last = math.max(last, tonumber(g))
local hint = tonumber(token)
if hint <= last or hint > last + 1000000 then
  -- The hint lines the nodes' counters up. A client whose clock is wrong must not drag them far into the future: at most
  -- a second beyond what this node knows, or a minute beyond its clock.
  local time = call('TIME')
  local fair = math.max(math.min(hint, (time[1] + 60) * 1000000 + time[2]), last + 1)
  token = string.format('%.0f', fair)
end
call('SET', KEYS[1], owner .. ' ' .. token .. ARGV[4], 'PX', ARGV[3])
call('ZADD', KEYS[2], token, 'f')
call('EXPIRE', KEYS[2], '608400')
return token

-- Takes the lock on this node, with a token of this node's own. The layout is explained in redlock/mod.rs. Most locks are
-- free and most hints good, so it writes first and looks afterwards: every call costs more than all the arithmetic.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 owner, 2 hint, 3 ttl in ms, 4 " <sent> <details>"
-- Answers "<token>", "O<token> <sent>" if the owner had it already, "B<pttl>" or "R".

local call, owner, token = redis.call, ARGV[1], ARGV[2]
local g = call('GET', KEYS[3])
if not g then
  return 'R'
end
if not call('SET', KEYS[1], owner .. ' ' .. token .. ARGV[4], 'PX', ARGV[3], 'NX') then
  local value = call('GET', KEYS[1])
  if string.sub(value, 1, 32) == owner then
    -- Asked again: what was said the first time, and from when its life counts.
    local given, sent = string.match(value, '^%x+ (%d+) (%d+)')
    return 'O' .. given .. ' ' .. sent
  end
  return 'B' .. call('PTTL', KEYS[1])
end
local last = math.max(tonumber(call('SET', KEYS[2], token, 'EX', '604800', 'GET') or 0), tonumber(g))
local hint = tonumber(token)
if hint > last and hint <= last + 1000000 then
  return token
end
-- The hint lines the nodes' counters up. A client whose clock is wrong must not drag them far into the future: at most a
-- second beyond what this node knows, or a minute beyond its clock.
local time = call('TIME')
local fair = math.max(math.min(hint, (time[1] + 60) * 1000000 + time[2]), last + 1)
if fair ~= hint then
  token = string.format('%.0f', fair)
  call('SET', KEYS[1], owner .. ' ' .. token .. ARGV[4], 'PX', ARGV[3])
  call('SET', KEYS[2], token, 'EX', '604800')
end
return token

-- Takes a lock that nobody has and nobody waits for, which is the way of most locks. Stands before everything else in
-- acquire.lua: to read the rest of it costs more than all this. The layout is explained in common.lua.
--
-- Answers the token, which is also the server's time.

if ARGV[2] == 'x' then
  local time = redis.call('TIME')
  local token = time[1] .. string.format('%06d', time[2])
  local fence = '{' .. KEYS[1] .. '}:fence'
  local before = redis.call('SET', fence, token, 'EX', '604800', 'GET')
  -- Of the same length, so not marked and comparable as they are.
  if not before or (#before == #token and before < token) then
    local record = 'tg1 ' .. ARGV[1] .. ' x ' .. token .. ' 0 ' .. ARGV[3] .. ' ' .. ARGV[4]
    if redis.call('SET', KEYS[1], record, 'NX', 'PX', ARGV[3]) then
      return token
    end
  else
    redis.call('SET', fence, before, 'EX', '604800')
  end
end

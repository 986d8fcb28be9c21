-- Takes a lock that nobody has and nobody waits for, which is the way of most locks. Stands before everything else in
-- acquire.lua: to read the rest of it costs more than all this. The layout is explained in common.lua.

if ARGV[2] == 'x' and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0 then
  local time = redis.call('TIME')
  local token = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', token)
  local before = redis.call('SET', KEYS[2], text, 'EX', 604800, 'GET')
  if before and tonumber(before) >= token then
    text = string.format('%.0f', tonumber(before) + 1)
    redis.call('SET', KEYS[2], text, 'EX', 604800)
  end
  local ends = string.format('%.0f', math.floor(token / 1000) + ARGV[4])
  local record = 'tg1 ' .. ARGV[1] .. ' x 0 ' .. text .. ' ' .. ends .. ' ' .. ARGV[4] .. ' ' .. ARGV[5] .. ' '
    .. ARGV[6] .. ' ' .. ARGV[7]
  redis.call('SET', KEYS[1], record, 'PX', ARGV[4])
  return { 'granted', text, ARGV[5], string.format('%.0f', token) }
end

-- Admits a fencing token before the first read: smaller tokens are refused from here on.
--
-- KEYS and ARGV:
--   the last key      the resource's mark, the highest exclusive token so far; it has no ttl
--   the last two args the fencing token, and "exclusive" or "shared"
--
-- Fails with FENCED if a larger token was here already, and changes nothing then.
do
  local mark, kind, token = table.remove(KEYS), table.remove(ARGV), table.remove(ARGV)
  local number = tonumber(string.match(token or '', '^%d+$') or '0')
  if number < 1 or number >= 2 ^ 53 or (kind ~= 'exclusive' and kind ~= 'shared') then
    return redis.error_reply('BADTOKEN the last two arguments are a token and "exclusive" or "shared"')
  end
  local highest = redis.pcall('GET', mark)
  if type(highest) == 'table' and not string.find(highest.err, 'WRONGTYPE', 1, true) then
    return highest
  end
  if highest and not (type(highest) == 'string' and string.find(highest, '^%d+$')) then
    return redis.error_reply('BADMARK ' .. mark .. ' is no mark, it holds something else')
  end
  if highest and number < tonumber(highest) then
    return redis.error_reply('FENCED ' .. highest .. ' was here already, the token ' .. token .. ' is stale')
  end
  if kind == 'exclusive' and not (highest and number == tonumber(highest)) then
    redis.call('SET', mark, string.format('%.0f', number))
  end
end
return redis.status_reply('OK')

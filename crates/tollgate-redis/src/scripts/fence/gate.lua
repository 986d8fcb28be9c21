-- Stands before a script that must not run with a stale token: lets it run, or ends it.
--
-- The last key is the resource's mark, the highest exclusive token that was let in: a plain string without a ttl. The
-- last two arguments are the token and "exclusive" or "shared". They are taken away, so that the script behind this
-- sees its own keys and arguments alone. An exclusive token raises the mark; a shared one does not. Equal passes.
--
-- All of this is put on one line, so that errors of the script behind it name its own lines: comments only above.
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

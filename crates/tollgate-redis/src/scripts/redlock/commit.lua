-- Moves the owner's lock on this node to the token that all nodes are to have.
--
-- KEYS: 1 lock, 2 fence, 3 member. ARGV: 1 owner, 2 token, 3 ttl in ms, 4 " <sent> <details>"
-- Answers "1", "N<highest token here>" if that is not below the token, "0" if the owner has no lock here, or "R".

local v = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
if not v[3] then
  return 'R'
end
if not v[1] or string.sub(v[1], 1, 32) ~= ARGV[1] then
  return '0'
end
if string.match(v[1], '^%x+ (%d+)') ~= ARGV[2] then
  local highest = math.max(tonumber(v[2] or 0), tonumber(v[3]))
  if highest >= tonumber(ARGV[2]) then
    return 'N' .. string.format('%.0f', highest)
  end
  redis.call('SET', KEYS[2], ARGV[2], 'EX', '604800')
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ARGV[4], 'PX', ARGV[3])
return '1'

-- What this node knows of a lock. Changes nothing.
--
-- KEYS: 1 lock, 2 member. Answers {value or "", pttl}, or {"R"}, or {"T", type, ""} if something else is at the key.

local v = redis.call('MGET', KEYS[1], KEYS[2])
if not v[2] then
  return { 'R' }
end
if not v[1] then
  local what = redis.call('TYPE', KEYS[1])['ok']
  if what ~= 'none' then
    return { 'T', what, '' }
  end
end
return { v[1] or '', string.format('%.0f', redis.call('PTTL', KEYS[1])) }

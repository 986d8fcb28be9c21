-- What this node knows of a lock. Changes nothing.
--
-- KEYS: 1 lock, 2 member. Answers {value or "", pttl}, or {"R"}.

local v = redis.call('MGET', KEYS[1], KEYS[2])
if not v[2] then
  return { 'R' }
end
return { v[1] or '', string.format('%.0f', redis.call('PTTL', KEYS[1])) }

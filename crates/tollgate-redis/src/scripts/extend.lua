-- Renews a grant.
--
-- ARGV: 1 owner, 2 ttl, 3 details, or nothing to leave them as they are. Answers 1, or 0 if the grant is gone.

local r = holder(ARGV[1])
if not r then
  return 0
end
r.ends = now + tonumber(ARGV[2])
if ARGV[3] then
  r.rest = string.match(r.rest, '^(%S+ %S+ )') .. ARGV[3]
end
if r.kind == 'x' then
  redis.call('SET', LOCK, pack(r), 'PX', ARGV[2])
else
  redis.call('HSET', HOLDERS, r.owner, pack(r))
  mark_many()
  -- Whoever comes must look at the holders as long as there are any.
  redis.call('EXPIRE', FENCE, REMEMBERED)
end
return 1

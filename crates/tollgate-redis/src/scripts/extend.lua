-- Renews a grant.
--
-- ARGV: 1 owner, 2 ttl, 3 details, or nothing to leave them as they are. Answers 1, or 0 if the grant is gone.

local r = holder(ARGV[1])
if not r then
  return 0
end
-- First what Redis does also when it is out of memory: after that it allows the rest.
redis.call('PEXPIRE', LOCK, ARGV[2])
if ARGV[3] then
  r.rest = string.match(r.rest, '^(%S+ %S+ )') .. ARGV[3]
end
write_holder(r, tonumber(ARGV[2]))
if r.kind ~= 'x' then
  -- It may have been the last one, and be shorter now.
  inside = nil
  mark_many()
end
-- A lock that is held for weeks must not forget its counter.
remember(tonumber(ARGV[2]))
return 1

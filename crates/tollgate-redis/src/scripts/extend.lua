-- Renews a grant.
--
-- ARGV: 1 owner, 2 ttl, 3 details, or nothing to leave them as they are. Answers 1, or 0 if the grant is gone, or 2 if an
-- operator broke the lock: the holder has what is left of its time to leave, if it still is one.

if redis.call('SISMEMBER', REVOKED, ARGV[1]) == 1 then
  return 2
end
local r = holder(ARGV[1])
if not r then
  return 0
end
-- First what Redis does also when it is out of memory: after that it allows the rest.
redis.call('PEXPIRE', LOCK, ARGV[2])
if ARGV[3] then
  local first, said = string.match(r.rest, '^(%S+ %S+ )(.*)$')
  -- What the holder said later may have come before.
  local function revision(details)
    return tonumber(string.match(details, '"revision":(%d+)') or 0)
  end
  if revision(ARGV[3]) >= revision(said) then
    r.rest = first .. ARGV[3]
  end
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

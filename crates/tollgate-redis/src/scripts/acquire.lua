-- Takes the lock, or a place in its queue. It is not held by one of ours alone, so somebody may have a turn: those who
-- wait, then this one.

-- Whether Redis lost data: a waiter has no queue position any more, though its time is not over, and no lock is there.
-- That also comes about when no token was left for it.
local function has_lost_data()
  return now < tonumber(ARGV[6] or 0)
    and redis.call('EXISTS', LOCK) == 0
    and redis.call('HEXISTS', WAITERS, mine.owner) == 0
    and redis.call('SISMEMBER', REVOKED, mine.owner) == 0
    and not holder(mine.owner)
    and tonumber(redis.call('ZSCORE', FENCE, 'f') or 0) < LARGEST
end

-- The holder that Redis forgot may rely on its lease until the end, which the waiter was told; if the holder renewed
-- or changed since then, the lease ends a ttl from now at the latest. Until then a presumed holder keeps the lock.
if has_lost_data() then
  local presumed = { mark = ' ', owner = string.rep('0', 32), kind = 'x', token = '-', ends = 0, ttl = mine.ttl }
  presumed.rest = '0 - {"since_ms":' .. number(now)
    .. ',"meta":{"note":"Redis lost the data of this lock, and the holder may still run"}}'
  write_alone(presumed, math.max(ttl, tonumber(ARGV[7]) - now))
  return queue_up(presumed)
end
advance()
local before = holder(mine.owner)
if before then
  return granted(before)
end
if redis.call('EXISTS', QUEUE) == 0 and fits(mine.kind) then
  if not admit(mine, ttl) then
    return no_tokens()
  end
  remember(0)
  if mine.kind ~= 'x' then
    mark_many()
  end
  return granted(mine)
end
return queue_up(inside_alone())

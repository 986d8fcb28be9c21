-- Takes the lock, or a place in its queue. It is not held by one of ours alone, so somebody may have a turn: those who
-- wait, then this one.

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

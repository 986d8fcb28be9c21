-- What a script needs where not everybody is exclusive, and the one rule that decides who is in.

-- Shared and permit holders that are alive: how many, of which kind, and until when the last of them. Clears the others
-- away. There may be thousands, so nobody reads them all.
local inside
local function crowd()
  if inside then
    return inside
  end
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', ENDS, '-inf', number(now))) do
    redis.call('HDEL', HOLDERS, owner)
    redis.call('ZREM', ENDS, owner)
  end
  local last = redis.call('ZRANGE', ENDS, '-1', '-1', 'WITHSCORES')
  local r = last[1] and unpack_record(redis.call('HGET', HOLDERS, last[1]) or '')
  inside = { count = redis.call('ZCARD', ENDS), last = tonumber(last[2]) or 0, kind = r and r.kind }
  return inside
end

-- Whether a claim may join those who are in.
local function fits(kind)
  local r, foreign = inside_alone()
  if r or foreign then
    return false
  end
  local others = crowd()
  if others.count == 0 then
    return true
  end
  if kind ~= others.kind then
    return false
  end
  local limit = tonumber(string.match(kind, '^p(%d+)$'))
  return kind == 's' or (limit ~= nil and others.count < limit)
end

-- The lock's own key says MANY for as long as the last of them.
local function mark_many()
  local others = crowd()
  if others.count == 0 then
    redis.call('DEL', LOCK, HOLDERS, ENDS)
  else
    write_lock(MANY, others.last - now, redis.call('PTTL', QUEUE))
    redis.call('PEXPIREAT', HOLDERS, number(others.last))
    redis.call('PEXPIREAT', ENDS, number(others.last))
  end
end

-- Writes down that r is in for `life` milliseconds from now. Who is not exclusive is to be marked, too, by `mark_many`.
local function write_holder(r, life)
  if r.kind == 'x' then
    return write_alone(r, life)
  end
  r.mark, r.ends = ' ', now + life
  local others = crowd()
  redis.call('HSET', HOLDERS, r.owner, pack(r))
  others.count = others.count + redis.call('ZADD', ENDS, number(r.ends), r.owner)
  others.kind, others.last = r.kind, math.max(others.last, r.ends)
end

-- What is answered where a token was needed and none is left.
local function no_tokens()
  return redis.error_reply('NOTOKENS ' .. FENCE)
end

-- Lets r, which is not in the queue any more, in for `life` milliseconds. Answers whether there was a token for it.
local function admit(r, life)
  r.token = draw()
  if r.token then
    write_holder(r, life)
  end
  return r.token ~= nil
end

-- Hands the lock to r, which was the first waiter. Answers whether there was a token for it; if not, it hears of that when
-- it asks again.
local function hand_to(r)
  local is_in = admit(r, proven(r))
  if is_in then
    tell(r)
  end
  return is_in
end

local function leave_queue(owner)
  redis.call('HDEL', WAITERS, owner)
  return redis.call('ZREM', QUEUE, owner) == 1
end

-- The first in the queue that is alive. Clears the others away.
local function first_waiter()
  while true do
    local head = redis.call('ZRANGE', QUEUE, '0', '0')[1]
    local r = head and unpack_record(redis.call('HGET', WAITERS, head) or '')
    if not head or (r and r.ends > now) then
      return r
    end
    leave_queue(head)
  end
end

-- Hands the lock to those whose turn it is.
local function advance()
  local r, many = first_waiter(), false
  while r and fits(r.kind) do
    leave_queue(r.owner)
    local is_in, alone = hand_to(r), r.kind == 'x'
    many = many or (is_in and not alone)
    -- Nobody gets in beside an exclusive holder.
    r = not (is_in and alone) and first_waiter()
  end
  if many then
    mark_many()
  end
end

-- The record of owner if it is in.
local function holder(owner)
  local r = inside_alone()
  if r and r.owner == owner then
    return r
  end
  local record = redis.call('HGET', HOLDERS, owner)
  r = record and unpack_record(record)
  if r and r.ends > now then
    return r
  end
  return nil
end

-- Hands on what an exclusive holder gave back, to `next` first, which was taken out of the queue.
local function follow_alone(next)
  local alone = next and next.kind == 'x'
  if alone and hand_to(next) then
    return
  end
  redis.call('DEL', LOCK)
  if next and not alone then
    hand_to(next)
    mark_many()
  end
  advance()
end

-- Ends the grant of r.
local function expel(r)
  if r.kind == 'x' then
    return follow_alone(next_waiter())
  end
  redis.call('HDEL', HOLDERS, r.owner)
  redis.call('ZREM', ENDS, r.owner)
  -- Whoever lasts longest may be another now.
  inside = nil
  mark_many()
  advance()
end

-- Nobody waits any more: the lock's own key need not outlast its holders.
local function unless_waited_for()
  if redis.call('EXISTS', QUEUE) == 1 then
    return
  end
  local value = redis.call('GET', LOCK)
  local r = inside_alone()
  if r and r.mark == '+' then
    write_holder(r, r.ends - now)
  elseif value == MANY then
    mark_many()
  elseif value and not r and unpack_record(value) then
    redis.call('DEL', LOCK)
  end
end

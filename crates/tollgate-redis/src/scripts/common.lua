-- What every script needs: the keys of one lock, its records, and the one rule that decides who is in.
--
-- KEYS[1] is the lock itself; the others are named after it, so that they are in its slot:
--
--   lock      an exclusive holder's record, or MANY while there are others; with a ttl. Anything else is another
--             client's, and is respected. While somebody waits it stays until the last waiter's ttl, so that
--             whoever takes free locks without looking further finds none.
--   :fence    a sorted set with one member, f, whose score is the last token
--   :queue    a sorted set: owner by ticket
--   :waiters  a hash: owner to record
--   :holders  a hash: owner to record, of shared and permit holders
--
-- A record is "tg1 OWNER KIND TOKEN ENDS TTL SENT CHANNEL DETAILS". KIND is x, s or p with its limit; ENDS is the
-- server's time in milliseconds, or 0: with the ttl of the lock. SENT is the client's own and goes back to it unread.
-- "tg1+" instead of "tg1 " says that somebody waits, or did: then a release has to look.
--
-- Whatever a script writes follows from one reading of the server's clock. Numbers leave as strings: Redis cuts
-- fractions off and Lua rounds.

local LOCK = KEYS[1]
local SIDE = '{' .. LOCK .. '}:'
local FENCE, QUEUE, WAITERS, HOLDERS = SIDE .. 'fence', SIDE .. 'queue', SIDE .. 'waiters', SIDE .. 'holders'
local MANY = 'tg1 many'
-- How long an idle lock's counter is remembered; after that the order of tokens rests on the server's clock.
local REMEMBERED = '608400'

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function number(n)
  return string.format('%.0f', n)
end

local function pack(r)
  return table.concat({ 'tg1' .. r.mark .. r.owner, r.kind, r.token, number(r.ends), r.ttl, r.rest }, ' ')
end

-- REST is "SENT CHANNEL DETAILS".
local function unpack_record(text)
  local mark, owner, kind, token, ends, ttl, rest =
    string.match(text, '^tg1([ +])(%x+) (%w+) (%S+) (%d+) (%d+) (.*)$')
  if not owner then
    return nil
  end
  return { mark = mark, owner = owner, kind = kind, token = token, ends = tonumber(ends), ttl = ttl, rest = rest }
end

-- The next token: larger than every one before, also if the counter was forgotten.
local function draw()
  local token = number(micros)
  if redis.call('ZADD', FENCE, 'GT', 'CH', token, 'f') == 0 then
    token = number(redis.call('ZINCRBY', FENCE, '1', 'f'))
  end
  redis.call('EXPIRE', FENCE, REMEMBERED)
  return token
end

-- The exclusive holder, if it is ours and lives; otherwise whether somebody else is in.
local function inside_alone()
  local value = redis.call('GET', LOCK)
  if not value or value == MANY then
    return nil, false
  end
  local r = unpack_record(value)
  if r and r.ends > 0 and r.ends <= now then
    return nil, false
  end
  return r, r == nil
end

-- Shared and permit holders that are alive: how many, and of which kind. Clears the others away. Read once: there may be
-- thousands.
local inside
local function crowd()
  if inside then
    return inside
  end
  inside = { count = 0, last = 0 }
  local records = redis.call('HGETALL', HOLDERS)
  for i = 1, #records, 2 do
    local r = unpack_record(records[i + 1])
    if r and r.ends > now then
      inside.count, inside.kind = inside.count + 1, r.kind
      inside.last = math.max(inside.last, r.ends)
    else
      redis.call('HDEL', HOLDERS, records[i])
    end
  end
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

-- Writes the lock's own key, for `life` milliseconds and as long as the queue lives.
local function write_lock(value, life, queue_life)
  redis.call('SET', LOCK, value, 'PX', number(math.max(life, queue_life)))
end

-- The lock's own key says MANY for as long as the last of them.
local function mark_many()
  local others = crowd()
  if others.count == 0 then
    redis.call('DEL', LOCK, HOLDERS)
  else
    write_lock(MANY, others.last - now, redis.call('PTTL', QUEUE))
    redis.call('PEXPIREAT', HOLDERS, number(others.last))
  end
end

-- Writes down that r is in for `life` milliseconds from now. Who is not exclusive is to be marked, too, by `mark_many`.
local function write_holder(r, life)
  if r.kind == 'x' then
    local queue_life = redis.call('PTTL', QUEUE)
    local waited_for = queue_life > 0
    r.mark, r.ends = waited_for and '+' or ' ', waited_for and now + life or 0
    write_lock(pack(r), life, queue_life)
  else
    r.mark, r.ends = ' ', now + life
    local others = crowd()
    others.count = others.count + redis.call('HSET', HOLDERS, r.owner, pack(r))
    others.kind, others.last = r.kind, math.max(others.last, r.ends)
  end
end

-- Lets r, which is not in the queue any more, in for `life` milliseconds.
local function admit(r, life)
  r.token = draw()
  write_holder(r, life)
  return r
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

-- Hands the lock to r, the first waiter. It is told over its client's channel: a hint, because whoever asks again
-- is answered the same.
local function hand_to(r)
  leave_queue(r.owner)
  -- Not beyond what the waiter has shown to be alive for.
  admit(r, math.min(tonumber(r.ttl), r.ends - now))
  local sent, channel = string.match(r.rest, '^(%S+) (%S+)')
  redis.call('PUBLISH', channel, r.owner .. ' ' .. r.token .. ' ' .. sent)
end

-- Hands the lock to those whose turn it is.
local function advance()
  local r, many = first_waiter(), false
  while r and fits(r.kind) do
    hand_to(r)
    many = many or r.kind ~= 'x'
    -- Nobody gets in beside an exclusive holder.
    r = r.kind ~= 'x' and first_waiter()
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

-- What a holder is answered.
local function granted(r)
  return { 'granted', r.token, string.match(r.rest, '^(%S+)'), number(micros) }
end

-- Ends the grant of r.
local function expel(r)
  if r.kind == 'x' then
    local next = first_waiter()
    if next and next.kind == 'x' then
      return hand_to(next)
    end
    redis.call('DEL', LOCK)
  else
    redis.call('HDEL', HOLDERS, r.owner)
    -- Whoever lasts longest may be another now.
    inside = nil
    mark_many()
  end
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

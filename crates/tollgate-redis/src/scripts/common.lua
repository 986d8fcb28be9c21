-- What every script needs: the keys of one lock, its records, and the one rule that decides who is in.
--
-- KEYS: 1 the lock itself, 2 its token counter, 3 the queue, 4 those in it, 5 shared and permit holders.
--
--   lock     an exclusive holder's record, or MANY while there are holders in 5; with a ttl. Anything else is
--            another client's, and is respected.
--   queue    a sorted set: owner by ticket
--   waiters  a hash: owner to record
--   holders  a hash: owner to record
--
-- A record is "tg1 OWNER KIND LIMIT TOKEN ENDS TTL SENT CHANNEL DETAILS": KIND is x, s or p, ENDS is the server's
-- time in milliseconds, SENT is the client's own and goes back to it unread. Whatever a script writes follows
-- from one reading of the server's clock. Numbers leave as strings: Redis cuts fractions off and Lua rounds.

local LOCK, FENCE, QUEUE, WAITERS, HOLDERS = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local MANY = 'tg1 many'
-- How long an idle lock's counter is remembered; after that the order of tokens rests on the server's clock.
local REMEMBERED = 7 * 24 * 3600

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function number(n)
  return string.format('%.0f', n)
end

local function pack(r)
  return table.concat(
    { 'tg1', r.owner, r.kind, r.limit, r.token or '-', number(r.ends), r.ttl, r.sent, r.channel, r.details }, ' ')
end

local function unpack_record(text)
  local owner, kind, limit, token, ends, ttl, sent, channel, details =
    string.match(text, '^tg1 (%x+) ([xsp]) (%d+) (%S+) (%d+) (%d+) (%S+) (%S+) (.*)$')
  if not owner then
    return nil
  end
  return { owner = owner, kind = kind, limit = limit, token = token, ends = tonumber(ends), ttl = ttl, sent = sent,
    channel = channel, details = details }
end

-- The next token: larger than every one before, also if the counter was forgotten.
local function draw()
  local token = micros
  local before = redis.call('SET', FENCE, number(token), 'EX', REMEMBERED, 'GET')
  if before and tonumber(before) >= token then
    token = tonumber(before) + 1
    redis.call('SET', FENCE, number(token), 'EX', REMEMBERED)
  end
  return number(token)
end

-- Shared and permit holders that are alive: how many, of which kind and limit. Clears the others away.
local function crowd()
  local found = { count = 0 }
  local records = redis.call('HGETALL', HOLDERS)
  for i = 1, #records, 2 do
    local r = unpack_record(records[i + 1])
    if r and r.ends > now then
      found.count, found.kind, found.limit = found.count + 1, r.kind, r.limit
      found.last = math.max(found.last or 0, r.ends)
    else
      redis.call('HDEL', HOLDERS, records[i])
    end
  end
  return found
end

-- Whether a claim may join those who are in.
local function fits(kind, limit)
  local value = redis.call('GET', LOCK)
  if value and value ~= MANY then
    return false
  end
  local inside = crowd()
  if inside.count == 0 then
    return true
  end
  if kind ~= inside.kind then
    return false
  end
  return kind == 's' or (kind == 'p' and limit == inside.limit and inside.count < tonumber(limit))
end

-- The lock's own key says MANY for as long as the last of them.
local function mark_many()
  local inside = crowd()
  if inside.count == 0 then
    redis.call('DEL', LOCK, HOLDERS)
  else
    redis.call('SET', LOCK, MANY, 'PXAT', number(inside.last))
    redis.call('PEXPIREAT', HOLDERS, number(inside.last))
  end
end

-- Lets r in for `life` milliseconds.
local function admit(r, life)
  r.token = draw()
  r.ends = now + life
  if r.kind == 'x' then
    redis.call('SET', LOCK, pack(r), 'PX', number(life))
  else
    redis.call('HSET', HOLDERS, r.owner, pack(r))
    mark_many()
  end
  return r
end

local function leave_queue(owner)
  redis.call('HDEL', WAITERS, owner)
  return redis.call('ZREM', QUEUE, owner) == 1
end

-- Hands the lock to those whose turn it is. Each is told over its client's channel: a hint, because whoever asks
-- again is answered the same.
local function advance()
  while true do
    local head = redis.call('ZRANGE', QUEUE, 0, 0)[1]
    if not head then
      return
    end
    local r = unpack_record(redis.call('HGET', WAITERS, head) or '')
    if not r or r.ends <= now then
      leave_queue(head)
    elseif fits(r.kind, r.limit) then
      leave_queue(head)
      -- Not beyond what the waiter has shown to be alive for.
      admit(r, math.min(tonumber(r.ttl), r.ends - now))
      redis.call('PUBLISH', r.channel, r.owner .. ' ' .. r.token .. ' ' .. r.sent)
    else
      return
    end
  end
end

-- The record of owner if it is in, and where.
local function holder(owner)
  local value = redis.call('GET', LOCK)
  local r = value and unpack_record(value)
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

-- Ends the grant of r.
local function expel(r)
  if r.kind == 'x' then
    redis.call('DEL', LOCK)
  else
    redis.call('HDEL', HOLDERS, r.owner)
    mark_many()
  end
  advance()
end

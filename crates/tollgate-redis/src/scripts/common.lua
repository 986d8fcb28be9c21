-- What every script needs: the keys of one lock, its records, and the one rule that decides who is in.
--
-- KEYS[1] is the lock itself; the others are named after it, so that they are in its slot:
--
--   lock      an exclusive holder's record, or MANY while there are others; with a ttl. Anything else is another
--             client's, and is respected.
--   :fence    the last token, with a + behind it while somebody waits or there are shared or permit holders
--   :queue    a sorted set: owner by ticket
--   :waiters  a hash: owner to record
--   :holders  a hash: owner to record, of shared and permit holders
--
-- A record is "tg1 OWNER KIND TOKEN ENDS TTL SENT CHANNEL DETAILS". KIND is x, s or p with its limit; ENDS is the
-- server's time in milliseconds, 0 for an exclusive holder, whose key has a ttl; SENT is the client's own and goes
-- back to it unread. "tg1+" instead of "tg1 " says that somebody waits: then a release has to look.
--
-- Whatever a script writes follows from one reading of the server's clock. Numbers leave as strings: Redis cuts
-- fractions off and Lua rounds.

local LOCK = KEYS[1]
local SIDE = '{' .. LOCK .. '}:'
local FENCE, QUEUE, WAITERS, HOLDERS = SIDE .. 'fence', SIDE .. 'queue', SIDE .. 'waiters', SIDE .. 'holders'
local MANY = 'tg1 many'
-- How long an idle lock's counter is remembered; after that the order of tokens rests on the server's clock.
local REMEMBERED = '604800'

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function number(n)
  return string.format('%.0f', n)
end

local function pack(r)
  return table.concat({ 'tg1' .. (r.mark or ' ') .. r.owner, r.kind, r.token or '-',
    r.kind == 'x' and r.token and '0' or number(r.ends), r.ttl, r.rest }, ' ')
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

local function sent_of(r)
  return string.match(r.rest, '^(%S+)')
end

-- Remembers the last token, for those who come: whether they must look at the queue and the holders.
local function remember(token, mark)
  redis.call('SET', FENCE, token .. mark, 'EX', REMEMBERED)
end

local function last_token()
  return string.match(redis.call('GET', FENCE) or '0', '^%d+')
end

-- The next token: larger than every one before, also if the counter was forgotten.
local function draw(mark)
  local token = number(math.max(tonumber(last_token()) + 1, micros))
  remember(token, mark)
  return token
end

-- Shared and permit holders that are alive: how many, and of which kind. Clears the others away.
local function crowd()
  local found = { count = 0 }
  local records = redis.call('HGETALL', HOLDERS)
  for i = 1, #records, 2 do
    local r = unpack_record(records[i + 1])
    if r and r.ends > now then
      found.count, found.kind = found.count + 1, r.kind
      found.last = math.max(found.last or 0, r.ends)
    else
      redis.call('HDEL', HOLDERS, records[i])
    end
  end
  return found
end

-- Whether a claim may join those who are in.
local function fits(kind)
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
  local limit = tonumber(string.match(kind, '^p(%d+)$'))
  return kind == 's' or (limit ~= nil and inside.count < limit)
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

-- Lets r, which is not in the queue any more, in for `life` milliseconds.
local function admit(r, life)
  local waited_for = redis.call('EXISTS', QUEUE) == 1
  r.ends = now + life
  if r.kind == 'x' then
    r.mark = waited_for and '+' or ' '
    r.token = draw(waited_for and '+' or '')
    redis.call('SET', LOCK, pack(r), 'PX', number(life))
  else
    r.mark = ' '
    r.token = draw('+')
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
    local head = redis.call('ZRANGE', QUEUE, '0', '0')[1]
    if not head then
      return
    end
    local r = unpack_record(redis.call('HGET', WAITERS, head) or '')
    if not r or r.ends <= now then
      leave_queue(head)
    elseif fits(r.kind) then
      leave_queue(head)
      -- Not beyond what the waiter has shown to be alive for.
      admit(r, math.min(tonumber(r.ttl), r.ends - now))
      local sent, channel = string.match(r.rest, '^(%S+) (%S+)')
      redis.call('PUBLISH', channel, r.owner .. ' ' .. r.token .. ' ' .. sent)
    else
      return
    end
  end
end

-- The record of owner if it is in.
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

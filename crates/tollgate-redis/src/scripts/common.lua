-- What every script needs: the keys of one lock, its records, its tokens, and how one exclusive holder follows another.
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
--   :ends     a sorted set: the same owners by ENDS
--   :revoked  a set of owners whose locks an operator broke; with a ttl, and only where that happened lately
--
-- A record is "tg1 OWNER KIND TOKEN ENDS TTL SENT CHANNEL DETAILS". KIND is x, s or p with its limit; ENDS is the
-- server's time in milliseconds, or 0: with the ttl of the lock. SENT is the client's own and goes back to it unread.
-- "tg1+" instead of "tg1 " says that somebody waits, or did: then a release has to look.
--
-- Whatever a script writes follows from one reading of the server's clock. Numbers leave as strings: Redis cuts
-- fractions off and Lua rounds. Each function is made anew in each run, so what a crowd needs is in crowd.lua, and
-- what is asked most often is answered before that.

local LOCK = KEYS[1]
local SIDE = '{' .. LOCK .. '}:'
local FENCE, QUEUE, WAITERS = SIDE .. 'fence', SIDE .. 'queue', SIDE .. 'waiters'
local HOLDERS, ENDS, REVOKED = SIDE .. 'holders', SIDE .. 'ends', SIDE .. 'revoked'
local MANY = 'tg1 many'
-- How long an idle lock's counter is remembered, in seconds; after that the order of tokens rests on the server's clock.
local REMEMBERED = 608400
-- The largest token: numbers beyond it are not exact everywhere.
local LARGEST = 9007199254740991

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function number(n)
  return string.format('%.0f', n)
end

local function pack(r)
  return 'tg1' .. r.mark .. r.owner .. ' ' .. r.kind .. ' ' .. r.token .. ' ' .. number(r.ends) .. ' ' .. r.ttl .. ' ' .. r.rest
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

-- Tokens that are drawn in the next `life` milliseconds are remembered long enough.
local function remember(life)
  redis.call('EXPIRE', FENCE, number(REMEMBERED + math.ceil(life / 1000)))
end

-- The next token: larger than every one before, also if the counter was forgotten. Whoever lets draw sees to it that it
-- is remembered. A counter that was deleted or evicted meanwhile is made anew here, with an end of its own. Nothing if no
-- number is left.
local function draw()
  local token = number(micros)
  if redis.call('ZADD', FENCE, 'XX', 'GT', 'CH', token, 'f') == 1 then
    return token
  end
  local last = redis.call('ZSCORE', FENCE, 'f')
  if not last then
    redis.call('ZADD', FENCE, token, 'f')
    remember(0)
    return token
  end
  return tonumber(last) < LARGEST and number(redis.call('ZINCRBY', FENCE, '1', 'f')) or nil
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

-- Writes the lock's own key, for `life` milliseconds and as long as the queue lives.
local function write_lock(value, life, queue_life)
  redis.call('SET', LOCK, value, 'PX', number(math.max(life, queue_life)))
end

-- Writes down that r is in alone for `life` milliseconds from now.
local function write_alone(r, life)
  local queue_life = redis.call('PTTL', QUEUE)
  local waited_for = queue_life > 0
  r.mark, r.ends = waited_for and '+' or ' ', waited_for and now + life or 0
  write_lock(pack(r), life, queue_life)
end

-- Takes the first that is alive out of the queue.
local function next_waiter()
  while true do
    local head = redis.call('ZPOPMIN', QUEUE)[1]
    if not head then
      return nil
    end
    local r = unpack_record(redis.call('HGET', WAITERS, head) or '')
    redis.call('HDEL', WAITERS, head)
    if r and r.ends > now then
      return r
    end
  end
end

-- For how long a waiter that gets in has shown to be alive, at most.
local function proven(r)
  return math.min(tonumber(r.ttl), r.ends - now)
end

-- Tells r over its client's channel that it is in: a hint, because whoever asks again is answered the same. Whoever may
-- not say so has left all the same.
local function tell(r)
  local sent, channel = string.match(r.rest, '^(%S+) (%S+)')
  redis.pcall('PUBLISH', channel, r.owner .. ' ' .. r.token .. ' ' .. sent)
end

-- What a holder is answered.
local function granted(r)
  return 'granted ' .. r.token .. ' ' .. string.match(r.rest, '^%S+') .. ' ' .. number(micros)
end

-- Waits for one of ours that holds the lock alone, or is refused because of it, before anything is known of crowds.
--
-- ARGV: 1 owner, 2 kind, 3 ttl, 4 "SENT CHANNEL DETAILS", 5 wait (1 or 0); of a waiter that asks again also 6 until
-- when it has a queue position and 7 when the lease ends that it waits for, as it was told, in ms; 0 for no end
-- Answers "granted TOKEN SENT NOW", "queued AHEAD FREE-IN NOW WHOSE" or "busy AHEAD FREE-IN NOW WHOSE", with spaces
-- between the words: to read a list takes a client longer.

local mine = { mark = ' ', owner = ARGV[1], kind = ARGV[2], token = '-', ends = 0, ttl = ARGV[3], rest = ARGV[4] }
local ttl = tonumber(mine.ttl)

-- Is refused because of whoever is in, or takes a place in the queue. r is who holds it, if one of ours does alone.
local function queue_up(r, foreign)
  -- When the lock comes free by itself, as far as is known; a client that is not ours tells nobody when it leaves.
  local left = not (r and r.ends > 0) and redis.call('PTTL', LOCK)
  local rest = ' ' .. number(left or r.ends - now) .. ' ' .. number(micros) .. (foreign and ' foreign' or ' ours')
  if ARGV[5] == '0' then
    local ahead = redis.call('ZRANK', QUEUE, mine.owner) or redis.call('ZCARD', QUEUE)
    return 'busy ' .. number(ahead + 1) .. rest
  end

  mine.ends = now + ttl
  local new = redis.call('HSET', WAITERS, mine.owner, pack(mine)) == 1
  local ahead = not new and redis.call('ZRANK', QUEUE, mine.owner)
  if not ahead then
    ahead = redis.call('ZCARD', QUEUE)
    local last = ahead > 0 and redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2] or 0
    redis.call('ZADD', QUEUE, number(last + 1), mine.owner)
  end
  -- A queue whose members are all gone goes with them, a little later, so that not everybody has to put it off. What is
  -- handed over to it is drawn from a counter that is there.
  if redis.call('PTTL', QUEUE) < ttl then
    local life = math.ceil(ttl * 1.25)
    redis.call('PEXPIRE', QUEUE, number(life))
    redis.call('PEXPIRE', WAITERS, number(life))
    if not foreign and redis.call('PTTL', LOCK) < life then
      redis.call('PEXPIRE', LOCK, number(life))
    end
    redis.call('ZADD', FENCE, 'GT', number(micros), 'f')
    remember(life)
  end
  if r and r.mark == ' ' then
    write_alone(r, left)
  end
  return 'queued ' .. number(ahead) .. rest
end

local r, foreign = inside_alone()
if r and r.owner == mine.owner then
  -- Asked again: the answer of the first time, which may have been lost.
  return granted(r)
end
if r then
  return queue_up(r)
end

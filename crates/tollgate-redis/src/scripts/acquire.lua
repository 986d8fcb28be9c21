-- Takes the lock, or a place in its queue.
--
-- ARGV: 1 owner, 2 kind, 3 ttl, 4 "SENT CHANNEL DETAILS", 5 wait (1 or 0)
-- Answers {granted, token, sent, now} | {queued, ahead, retry after, now, whose} | {busy, ahead, retry after, now, whose}.

local mine = { owner = ARGV[1], kind = ARGV[2], ends = 0, ttl = ARGV[3], rest = ARGV[4] }
local ttl = tonumber(mine.ttl)

local function granted(r)
  return { 'granted', r.token, sent_of(r), number(micros) }
end

-- Asked again: the answer of the first time, which may have been lost.
local before = holder(mine.owner)
if before then
  return granted(before)
end
advance()
before = holder(mine.owner)
if before then
  return granted(before)
end

local ahead = redis.call('ZRANK', QUEUE, mine.owner)
if not ahead then
  ahead = redis.call('ZCARD', QUEUE)
  if ahead == 0 and fits(mine.kind) then
    return granted(admit(mine, ttl))
  end
end

-- When the lock comes free by itself, as far as is known; a client that is not ours tells nobody when it leaves.
local value = redis.call('GET', LOCK)
local retry = value and redis.call('PTTL', LOCK) or 0
local foreign = value and string.sub(value, 1, 3) ~= 'tg1'
local answer = { 'busy', number(ahead + 1), number(retry), number(micros), foreign and 'foreign' or 'ours' }
if ARGV[5] == '1' then
  answer[1], answer[2] = 'queued', number(ahead)
  mine.ends = now + ttl
  if not redis.call('ZSCORE', QUEUE, mine.owner) then
    local last = redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
    redis.call('ZADD', QUEUE, number((tonumber(last) or 0) + 1), mine.owner)
  end
  redis.call('HSET', WAITERS, mine.owner, pack(mine))
  -- Those who leave and those who come have to look from now on.
  if value and string.sub(value, 1, 4) == 'tg1 ' and value ~= MANY then
    redis.call('SETRANGE', LOCK, '3', '+')
  end
  remember(last_token(), '+')
  -- A queue whose members are all gone goes with them.
  for _, key in ipairs({ QUEUE, WAITERS }) do
    if redis.call('PTTL', key) < ttl then
      redis.call('PEXPIRE', key, mine.ttl)
    end
  end
end
return answer

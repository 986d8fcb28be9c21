-- Takes the lock, or a place in its queue.
--
-- ARGV: 1 owner, 2 kind, 3 ttl, 4 "SENT CHANNEL DETAILS", 5 wait (1 or 0)
-- Answers {granted, token, sent, now} | {queued, ahead, retry after, now, whose} | {busy, ahead, retry after, now, whose}.

local mine = { mark = ' ', owner = ARGV[1], kind = ARGV[2], token = '-', ends = 0, ttl = ARGV[3], rest = ARGV[4] }
local ttl = tonumber(mine.ttl)

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
local waits = ahead and true
if not ahead then
  ahead = redis.call('ZCARD', QUEUE)
  if ahead == 0 and fits(mine.kind) then
    return granted(admit(mine, ttl))
  end
end

-- When the lock comes free by itself, as far as is known; a client that is not ours tells nobody when it leaves.
local r, foreign = inside_alone()
local left = redis.call('PTTL', LOCK)
local retry = r and r.ends > 0 and r.ends - now or left
local answer = { 'busy', number(ahead + 1), number(retry), number(micros), foreign and 'foreign' or 'ours' }
if ARGV[5] == '1' then
  answer[1], answer[2] = 'queued', number(ahead)
  mine.ends = now + ttl
  if not waits then
    local last = redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
    redis.call('ZADD', QUEUE, number((tonumber(last) or 0) + 1), mine.owner)
  end
  redis.call('HSET', WAITERS, mine.owner, pack(mine))
  -- A queue whose members are all gone goes with them, and the lock stays as long as there is one.
  for _, key in ipairs({ QUEUE, WAITERS }) do
    if redis.call('PTTL', key) < ttl then
      redis.call('PEXPIRE', key, mine.ttl)
    end
  end
  if r and r.mark == ' ' then
    write_holder(r, left)
  elseif not foreign and left < ttl then
    redis.call('PEXPIRE', LOCK, mine.ttl)
  end
end
return answer

-- Takes the lock, or a place in its queue.
--
-- ARGV: 1 owner, 2 kind, 3 ttl, 4 "SENT CHANNEL DETAILS", 5 wait (1 or 0)
-- Answers {granted, token, sent, now} | {queued, ahead, retry after, now, whose} | {busy, ahead, retry after, now, whose}.

local mine = { mark = ' ', owner = ARGV[1], kind = ARGV[2], token = '-', ends = 0, ttl = ARGV[3], rest = ARGV[4] }
local ttl = tonumber(mine.ttl)

local r, foreign = inside_alone()
if r and r.owner == mine.owner then
  -- Asked again: the answer of the first time, which may have been lost.
  return granted(r)
end
if not r then
  -- It is not held by one of ours alone, so somebody may have a turn: those who wait, then this one.
  advance()
  local before = holder(mine.owner)
  if before then
    return granted(before)
  end
  if redis.call('EXISTS', QUEUE) == 0 and fits(mine.kind) then
    admit(mine, ttl)
    if mine.kind ~= 'x' then
      mark_many()
    end
    return granted(mine)
  end
  r, foreign = inside_alone()
end

local ahead = redis.call('ZRANK', QUEUE, mine.owner)
local waits = ahead and true
if not waits then
  ahead = redis.call('ZCARD', QUEUE)
end
-- When the lock comes free by itself, as far as is known; a client that is not ours tells nobody when it leaves.
local left = redis.call('PTTL', LOCK)
local retry = r and r.ends > 0 and r.ends - now or left
local answer = { 'busy', number(ahead + 1), number(retry), number(micros), foreign and 'foreign' or 'ours' }
if ARGV[5] == '0' then
  return answer
end

answer[1], answer[2] = 'queued', number(ahead)
mine.ends = now + ttl
if not waits then
  local last = redis.call('ZRANGE', QUEUE, '-1', '-1', 'WITHSCORES')[2]
  redis.call('ZADD', QUEUE, number((tonumber(last) or 0) + 1), mine.owner)
end
redis.call('HSET', WAITERS, mine.owner, pack(mine))
-- A queue whose members are all gone goes with them, a little later, so that not everybody has to put it off.
if redis.call('PTTL', QUEUE) < ttl then
  local life = math.ceil(ttl * 1.25)
  redis.call('PEXPIRE', QUEUE, number(life))
  redis.call('PEXPIRE', WAITERS, number(life))
  if not foreign and left < life then
    redis.call('PEXPIRE', LOCK, number(life))
  end
end
if r and r.mark == ' ' then
  write_holder(r, left)
end
return answer

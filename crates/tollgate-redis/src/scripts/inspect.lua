-- Who holds a lock and who waits for it. Changes nothing.
--
-- Answers {now in ms, value of the lock, its pttl, {holders' records}, {waiters' records in order}}.

local waiters = {}
local order = redis.call('ZRANGE', QUEUE, 0, -1)
for i = 1, #order do
  waiters[i] = redis.call('HGET', WAITERS, order[i]) or ''
end
return {
  number(now),
  redis.call('GET', LOCK) or '',
  number(redis.call('PTTL', LOCK)),
  redis.call('HVALS', HOLDERS),
  waiters,
}

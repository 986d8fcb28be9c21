-- Gives a node's mutex key back.
--
-- KEYS: 1 mutex. ARGV: 1 who has it. Answers "1" or "0".

if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return '1'
end
return '0'

-- Gives the lock back and hands it on.
--
-- ARGV: 1 owner. Answers 1, or 0 if there was nothing to give back.

if was_alone then
  follow_alone(next)
  return 1
end
local r = holder(ARGV[1])
if not r then
  return 0
end
expel(r)
return 1

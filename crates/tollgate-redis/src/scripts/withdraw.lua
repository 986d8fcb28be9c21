-- Makes sure that nothing of a claim is left: it leaves the queue, or gives the lock back.
--
-- ARGV: 1 owner

if not leave_queue(ARGV[1]) then
  local r = holder(ARGV[1])
  if r then
    expel(r)
  end
else
  advance()
end
return 1

-- Makes sure that nothing of a claim is left: it leaves the queue, or gives the lock back.
--
-- ARGV: 1 owner

if leave_queue(ARGV[1]) then
  advance()
  unless_waited_for()
else
  local r = holder(ARGV[1])
  if r then
    expel(r)
  end
end
return 1

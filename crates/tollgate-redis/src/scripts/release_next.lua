-- Hands an exclusive lock to the next one that wants it for itself, before anything is known of crowds.

local was_alone = mark == '+' and tonumber(ends) > now
local next = was_alone and next_waiter()
if next and next.kind == 'x' then
  next.token = draw()
  if next.token then
    write_alone(next, proven(next))
    tell(next)
    return 1
  end
end

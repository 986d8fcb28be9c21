-- Gives back whatever was taken up to this turn, which is one lock at most, however often it came. Answers how many.
select if(@tollgate_turn <= ?, release_all_locks(), null)

-- Takes a lock if that is possible within some seconds. The first two values are the number of the turn: one that was had
-- before is a request that came twice, and does nothing. The token is drawn after it, from the row of this lock.
select if(@tollgate_turn < ?, if((@tollgate_turn := ?) > 0 and get_lock(?, ?) = 1, 0, null), null)

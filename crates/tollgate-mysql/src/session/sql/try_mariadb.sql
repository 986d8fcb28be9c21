-- Takes a lock if that is possible within some seconds, and a token with it. The first two values are the number of the turn:
-- one that was had before is a request that came twice, and does nothing.
select if(@tollgate_turn < ?, if((@tollgate_turn := ?) > 0 and get_lock(?, ?) = 1, nextval(tollgate_tokens), null), null)

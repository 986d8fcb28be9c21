-- Locks that live as long as a user's transaction, in that transaction. Each statement begins with its name.
--
-- What a transaction locks it keeps until it ends, also what it only looked at. So a lock is taken by its row alone, which READ
-- COMMITTED lets go of at once if it does not fit, and rows of others are looked at without locks as long as they may be in.

-- :take
-- Keeps the row of a lock, and writes down whose it is: a transaction that asks again gets the token that it has. One of the
-- conditions below follows.
update tollgate_locks
set token = last_insert_id(if(owner is null and details = concat(@session_of_tollgate, ?), token, nextval(tollgate_tokens))),
    owner = null, details = concat(@session_of_tollgate, ?),
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
where name = ?

-- :take_counted
-- The same with a token that the row counts.
update tollgate_locks
set token = last_insert_id(if(owner is null and details = concat(@session_of_tollgate, ?), token, counter + 1)),
    counter = counter + if(owner is null and details = concat(@session_of_tollgate, ?), 0, 1),
    owner = null, details = concat(@session_of_tollgate, ?),
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
where name = ?

-- :if_free
-- Nobody has it or wants it, or this transaction has it: whoever lives again since waits for it.
    and owner is null and (waiters = 0 and holders = 0 or details = concat(@session_of_tollgate, ?))

-- :if_as_seen
-- Nobody came since the row was seen with this holder and this last ticket.
    and owner <=> ? and last = ? and (owner is null or expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)))

-- :row
-- Whose it is by its row, the last ticket, and whether that holder's time is over there.
select owner, last, owner is null or expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
from tollgate_locks where name = ?

-- :row_locked
-- The same for who would see an old one otherwise.
select owner, last, owner is null or expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
from tollgate_locks where name = ? for update

-- :lives
-- Whether anybody who is in or waits lives, or this holder, beside the row. It locks nothing.
select exists (
    select 1 from tollgate_claims
    where name = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
) or exists (
    select 1 from tollgate_renewals
    where owner = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
)

-- :lives_locked
-- The same behind those who are being renewed in this moment. Who is found to live cannot be renewed any more.
select exists (
    select 1 from tollgate_claims
    where name = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    lock in share mode
) or exists (
    select 1 from tollgate_renewals
    where owner = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    lock in share mode
)

-- :make
-- The row, if it is not there. Where it is, nothing is locked.
insert into tollgate_locks (name) select ? from (select 1) as one
where not exists (select 1 from tollgate_locks where name = ?)

-- :dialect
select dialect from tollgate_version

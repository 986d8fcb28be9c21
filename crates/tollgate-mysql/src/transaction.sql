-- Locks that live as long as a user's transaction, in that transaction. Each statement begins with its name.

-- :take
-- Keeps the row of a lock that nobody has or wants, and writes down whose it is: a transaction that asks again gets the token that
-- it has. In READ COMMITTED a row that is another's is let go of at once.
update tollgate_locks
set token = last_insert_id(if(owner is null and details = concat(@session_of_tollgate, ?), token, nextval(tollgate_tokens))),
    owner = null, details = concat(@session_of_tollgate, ?),
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
-- Whoever lives again since it was taken waits for this transaction.
where (owner is null and details = concat(@session_of_tollgate, ?)
    -- The dead are counted until somebody looks.
    or (waiters = 0 and holders = 0 or not exists (
        select 1 from tollgate_claims c
        where c.name = tollgate_locks.name and c.expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        lock in share mode
    ))
    and (owner is null or expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) and not exists (
        -- Locked, so that it is the newest.
        select 1 from tollgate_renewals r
        where r.owner = tollgate_locks.owner and r.expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        lock in share mode
    )))
    and name = ?

-- :take_counted
-- The same with a token that the row counts.
update tollgate_locks
set token = last_insert_id(if(owner is null and details = concat(@session_of_tollgate, ?), token, counter + 1)),
    counter = counter + if(owner is null and details = concat(@session_of_tollgate, ?), 0, 1),
    owner = null, details = concat(@session_of_tollgate, ?),
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
-- Whoever lives again since it was taken waits for this transaction.
where (owner is null and details = concat(@session_of_tollgate, ?)
    -- The dead are counted until somebody looks.
    or (waiters = 0 and holders = 0 or not exists (
        select 1 from tollgate_claims c
        where c.name = tollgate_locks.name and c.expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        lock in share mode
    ))
    and (owner is null or expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) and not exists (
        -- Locked, so that it is the newest.
        select 1 from tollgate_renewals r
        where r.owner = tollgate_locks.owner and r.expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        lock in share mode
    )))
    and name = ?

-- :make
-- The row, if it is not there. Where it is, nothing is locked.
insert into tollgate_locks (name) select ? from (select 1) as one
where not exists (select 1 from tollgate_locks where name = ?)

-- :dialect
select dialect from tollgate_version

-- The statements that clients send. Each begins with its name; how they belong together is told in schema.sql.

-- :take
-- Takes a lock that is free and that nobody waits for: its row has everything that decides. The token is drawn when the row
-- is locked, and comes back without another question.
update tollgate_locks
set token = last_insert_id(nextval(tollgate_tokens)), owner = ?,
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ? * 1000, ttl = ?, sent = ?, details = ?
where name = ? and owner is null and waiters = 0 and holders = 0

-- :take_counted
-- The same with a token that the row counts.
update tollgate_locks
set token = last_insert_id(counter + 1), counter = counter + 1, owner = ?,
    expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ? * 1000, ttl = ?, sent = ?, details = ?
where name = ? and owner is null and waiters = 0 and holders = 0

-- :leave
-- Gives back a lock that nobody waits for.
update tollgate_locks
set owner = null, expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
where name = ? and owner = ? and waiters = 0
    and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- :renew
-- Renews the grant of an exclusive holder. What it said later may have come before. The operator who breaks the lock has its row
-- while it writes the mark: the mark is looked for with the row at hand, by a read of what is there now. A plain
-- subquery, or one that compares with the value alone, is done before this statement has waited for the row.
update tollgate_locks
set expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ? * 1000, ttl = ?,
    details = if(
        coalesce(cast(json_extract(?, '$.revision') as unsigned), 0)
            >= coalesce(cast(json_extract(convert(details using utf8mb4), '$.revision') as unsigned), 0),
        coalesce(?, details), details
    )
where name = ? and owner = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    and not exists (
        select 1 from tollgate_revocations r
        where r.owner = tollgate_locks.owner and tollgate_locks.owner = ? lock in share mode
    )

-- :renew_claim
-- Renews the grant of a shared or permit holder.
update tollgate_claims
set expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ? * 1000, ttl = ?,
    details = if(
        coalesce(cast(json_extract(?, '$.revision') as unsigned), 0)
            >= coalesce(cast(json_extract(convert(details using utf8mb4), '$.revision') as unsigned), 0),
        coalesce(?, details), details
    )
where name = ? and owner = ? and token is not null
    and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    and not exists (
        select 1 from tollgate_revocations r
        where r.owner = tollgate_claims.owner and tollgate_claims.owner = ? lock in share mode
    )

-- :refresh
-- Keeps a place in a queue. It needs nothing of the lock's row, so that nobody who sits on that is in its way.
update tollgate_claims
set expires = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + ? * 1000, sent = ?
where name = ? and ticket = ? and owner = ? and token is null and expires > 0

-- :look
-- Whether a waiter has something to do: it was let in, it is forgotten, nobody is in, or its place has to be kept. Those who leave
-- hand on by themselves, so that of many who are in only the dead give a reason to ask: all of them, or one if it leaves a
-- permit; and the first of the queue, if it died. It changes nothing, and locks nothing.
select c.ticket is null or c.token is not null
        or c.expires < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + c.ttl * 700
        or l.owner is null and l.holders = 0
        or l.owner is not null and l.expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        or l.holders > 0 and (
            not exists (
                select 1 from tollgate_claims h
                where h.name = l.name and h.ticket between l.since and l.served and h.token is not null
                    and h.expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
            )
            or c.mode = 'p' and exists (
                select 1 from tollgate_claims h
                where h.name = l.name and h.ticket between l.since and l.served and h.token is not null
                    and h.expires <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
            )
            or (
                select w.expires from tollgate_claims w
                where w.name = l.name and w.ticket > l.served order by w.ticket limit 1
            ) <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
        ) as has_to_ask,
    least(c.ticket - l.served - 1, l.waiters - 1) as ahead,
    if(l.owner is null, null, (l.expires - timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))) div 1000) as free_in,
    timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as age
from tollgate_locks l left join tollgate_claims c on c.name = l.name and c.ticket = ? and c.owner = ?
where l.name = ?

-- :acquire
call tollgate_acquire(?, ?, ?, ?, ?, ?, ?, ?, ?)

-- :extend
call tollgate_extend(?, ?, ?, ?)

-- :extend_beside
call tollgate_extend_beside(?, ?, ?)

-- :release
call tollgate_leave(?, ?, ?)

-- :forget
-- Ends a claim where it stands, without the lock's row: nobody lets it in, and whoever has the row next removes it. Late
-- refreshes do not revive it.
update tollgate_claims set expires = 0 where owner = ? and name = ?

-- :stands
-- Whether a claim is anywhere and was not forgotten. It waits for nobody.
select exists (select 1 from tollgate_locks where name = ? and owner = ?)
    or exists (select 1 from tollgate_claims where owner = ? and name = ? and expires > 0)

-- :revoke
call tollgate_revoke(?, ?, ?)

-- :is_revoked
select exists (select 1 from tollgate_revocations where owner = ?)

-- :floor
call tollgate_raise_floor(?, ?)

-- :sweep
call tollgate_sweep()

-- :inspect
-- Everybody who is in or waits, and lives.
select name, 'x' as mode, 1 as places, token, 0 as ticket,
    (greatest(l.expires, coalesce(r.expires, 0)) - timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))) div 1000
        as left_ms, details
from tollgate_locks l left join tollgate_renewals r using (owner)
where name = ? and owner is not null
    and greatest(l.expires, coalesce(r.expires, 0)) > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
union all
select name, mode, places, token, ticket,
    (expires - timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))) div 1000, details
from tollgate_claims
where name = ? and expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
order by ticket

-- :page
-- The same of the next locks after a name, of those that start with a prefix and end before another name.
with names as (
    select name from tollgate_locks
    where name >= ? and name > ? and (? is null or name < ?) and (owner is not null or holders > 0 or waiters > 0)
    order by name limit 200
)
select name, 'x' as mode, 1 as places, token, 0 as ticket,
    (greatest(l.expires, coalesce(r.expires, 0)) - timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))) div 1000
        as left_ms, details
from tollgate_locks l join names using (name) left join tollgate_renewals r using (owner)
where owner is not null
    and greatest(l.expires, coalesce(r.expires, 0)) > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
union all
select name, mode, places, token, ticket,
    (expires - timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))) div 1000, details
from tollgate_claims join names using (name)
where expires > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
union all
-- Where the page ends, though nobody lives there.
select max(name), '-', 0, null, 0, 0, '' from names having count(*) > 0
order by name, ticket

-- :now
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))

-- :is_there
-- Whether a connection is there still.
select 1 from information_schema.processlist where id = ? and host = ?

-- :kill
-- Ends one.
kill connection ?

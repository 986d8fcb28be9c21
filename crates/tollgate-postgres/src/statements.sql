-- The statements that clients send. Each begins with its name; how they belong together is told in schema.sql.

-- :take
-- Takes a lock that is free and that nobody waits for: its row has everything that decides. The token is drawn after the row
-- is known to be as it was seen: had anybody changed it meanwhile, it would be looked at, and drawn, again.
update tollgate.locks
set owner = $2, token = nextval('tollgate.tokens'), expires = clock_timestamp() + $3 * interval '1 ms',
    ttl = $3, sent = $4, details = $5
where name = $1 and owner is null and waiters = 0 and holders = 0
returning token, (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- :leave
-- Gives back a lock that nobody waits for. That need not outlast a crash: the lock would be held until its ttl is over.
update tollgate.locks
set owner = null, expires = clock_timestamp()
where name = $1 and owner = $2 and waiters = 0 and expires > clock_timestamp()
returning set_config('synchronous_commit', 'off', true)

-- :renew
-- Renews the grant of an exclusive holder, unless somebody sits on the lock's row: that is not waited for. What the holder said
-- later may have come before.
with held as (
    select name from tollgate.locks where name = $1 and owner = $2 and expires > clock_timestamp()
        and not exists (select from tollgate.revocations where owner = $2)
    for no key update skip locked
)
update tollgate.locks l
set expires = clock_timestamp() + $3 * interval '1 ms', ttl = $3, details = case
        when coalesce(substring($4 from '"revision":([0-9]+)')::bigint, 0)
            < coalesce(substring(l.details from '"revision":([0-9]+)')::bigint, 0) then l.details
        else coalesce($4, l.details)
    end
from held where l.name = held.name
returning true

-- :renew_together
-- Renews the grant of a shared or permit holder. It needs nothing of the lock's row: whoever judges the holders deletes the
-- dead, and waits for, and leaves, one that is renewed in that moment.
update tollgate.claims
set expires = clock_timestamp() + $3 * interval '1 ms', ttl = $3, details = case
        when coalesce(substring($4 from '"revision":([0-9]+)')::bigint, 0)
            < coalesce(substring(details from '"revision":([0-9]+)')::bigint, 0) then details
        else coalesce($4, details)
    end
where owner = $2 and name = $1 and token is not null and expires > clock_timestamp()
    and not exists (select from tollgate.revocations r where r.owner = $2)
returning true

-- :refresh
-- Keeps a place in a queue. It needs nothing of the lock's row, so that nobody who sits on that is in its way.
update tollgate.claims
set expires = clock_timestamp() + $4 * interval '1 ms', sent = $5
where name = $1 and ticket = $2 and owner = $3 and token is null and expires > 'epoch'
returning set_config('synchronous_commit', 'off', true)

-- :keep
-- Keeps the places of all claims of a client that wait, one after another in each array, and tells of each how many wait ahead of
-- it and in how many milliseconds it may be in without having been told: when the lock's holder and those who wait ahead of it
-- have all been silent for their ttl. Claims that are not there, were let in, or are locked by others in this moment, are left
-- out: they ask. It needs nothing of the lock's row, so that a crowd that waits is in the way of no renewal. A place that was
-- refreshed lately is only looked at.
with asked as (
    select * from unnest($1, $2, $3, $4, $5) with ordinality as a (name, ticket, owner, ttl, sent, number)
), standing as (
    select a.number, c.name, c.ticket, c.mode, a.ttl, a.sent,
        c.expires < clock_timestamp() + a.ttl * 0.75 * interval '1 ms' as due
    from asked a join tollgate.claims c on c.name = a.name and c.ticket = a.ticket
    where c.owner = a.owner and c.token is null and c.expires > 'epoch'
), locked as (
    select c.name, c.ticket from tollgate.claims c join standing s on c.name = s.name and c.ticket = s.ticket
    where s.due and c.token is null and c.expires > 'epoch'
    for no key update of c skip locked
), kept as (
    update tollgate.claims c set expires = clock_timestamp() + s.ttl * interval '1 ms', sent = s.sent
    from locked k join standing s on s.name = k.name and s.ticket = k.ticket
    where c.name = k.name and c.ticket = k.ticket
    returning s.number, set_config('synchronous_commit', 'off', true)
)
select s.number, greatest(least(s.ticket - l.served - 1, l.waiters - 1), 0) as ahead,
    (extract(epoch from greatest(holder.until, predecessors.until, clock_timestamp()) - clock_timestamp()) * 1000)::bigint as look_in
from standing s join tollgate.locks l on l.name = s.name
    left join tollgate.renewals r on r.owner = l.owner
    cross join lateral (
        select case
            when l.owner is not null then greatest(l.expires, r.expires)
            when l.holders = 0 then null
            else (
                -- A permit waits for any of those who are in, everybody else for all.
                select case s.mode when 'p' then min(c.expires) else max(c.expires) end from (
                    select c.expires from tollgate.claims c
                    where c.name = s.name and c.ticket between l.since and l.served and c.token is not null limit 100
                ) c
            ) end as until
    ) holder
    cross join lateral (
        -- The first few are enough: if they are silent, one look at the queue removes all that are.
        select max(c.expires) as until from (
            select c.expires from tollgate.claims c
            where c.name = s.name and c.ticket > l.served and c.ticket < s.ticket and c.token is null
            order by c.ticket limit 4
        ) c
    ) predecessors
where not s.due or exists (select from kept k where k.number = s.number)

-- :acquire
select outcome, token, sent, ticket, ahead, free_in, age
from tollgate.acquire($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- :extend_beside
select tollgate.extend_beside($1, $2, $3)

-- :release
select tollgate.leave($1, $2, $3)

-- :forget
-- Ends a claim where it stands, without the lock's row: nobody lets it in, and whoever has the row next removes it. Late
-- refreshes do not revive it.
update tollgate.claims set expires = 'epoch' where owner = $1 and name = $2
returning set_config('synchronous_commit', 'off', true)

-- :stands
-- Whether a claim is anywhere and was not forgotten. It waits for nobody.
select exists (select from tollgate.locks where name = $2 and owner = $1)
    or exists (select from tollgate.claims where owner = $1 and name = $2 and expires > 'epoch')

-- :revoke
select tollgate.revoke($1, $2, $3)

-- :is_revoked
select exists (select from tollgate.revocations where owner = $1)

-- :floor
select tollgate.raise_floor($1)

-- :sweep
select tollgate.sweep()

-- :inspect
-- Everybody who is in or waits, and lives.
select name, 'x'::"char" as mode, 1::bigint as places, token, 0::bigint as ticket,
    (extract(epoch from greatest(l.expires, r.expires) - clock_timestamp()) * 1000)::bigint as left_ms, details
from tollgate.locks l left join tollgate.renewals r using (owner)
where name = $1 and owner is not null and greatest(l.expires, r.expires) > clock_timestamp()
union all
select name, mode, places, token, ticket, (extract(epoch from expires - clock_timestamp()) * 1000)::bigint, details
from tollgate.claims where name = $1 and expires > clock_timestamp()
order by ticket

-- :page
-- The same of the next locks after the name $2, of those that start with $1 and end before $3.
with names as (
    select name from tollgate.locks
    where name >= $1 and name > $2 and ($3::text is null or name < $3) and (owner is not null or holders > 0 or waiters > 0)
    order by name limit 200
)
select name, 'x'::"char" as mode, 1::bigint as places, token, 0::bigint as ticket,
    (extract(epoch from greatest(l.expires, r.expires) - clock_timestamp()) * 1000)::bigint as left_ms, details
from tollgate.locks l join names using (name) left join tollgate.renewals r using (owner)
where owner is not null and greatest(l.expires, r.expires) > clock_timestamp()
union all
select name, mode, places, token, ticket, (extract(epoch from expires - clock_timestamp()) * 1000)::bigint, details
from tollgate.claims join names using (name) where expires > clock_timestamp()
union all
-- Where the page ends, though nobody lives there.
select max(name), '-', 0, null, 0, 0, '' from names having count(*) > 0
order by name, ticket

-- :terminate
-- Ends a server process of ours, unless its number is somebody else's by now. Answers whether it was still there.
select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and application_name = $2

-- :now
select (date_part('epoch', clock_timestamp()) * 1000000)::bigint

-- :probe
select pg_notify($1, 'probe')

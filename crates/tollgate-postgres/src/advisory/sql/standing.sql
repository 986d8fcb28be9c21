-- How it stands with the connections $1 that wait for a lock: whether each is still there, whether it has its lock by now,
-- and who holds the lock under another name, if somebody does.

select
    asked.session,
    locks.pid is not null as there,
    coalesce(locks.granted, false) as granted,
    (
        select holder.name
        from pg_locks as held
            join pg_stat_activity as theirs on theirs.pid = held.pid
            join tollgate.sessions as holder on holder.session = theirs.application_name
        where held.locktype = 'advisory' and held.granted and held.objsubid = 1
            and (held.database, held.classid, held.objid) = (locks.database, locks.classid, locks.objid)
            and holder.key = (held.classid::bigint << 32 | held.objid::bigint)
            and holder.name <> asked.name
        limit 1
    ) as other
from unnest($1::text[], $2::text[]) as asked (session, name)
    left join pg_stat_activity as activity on activity.application_name = asked.session
    left join pg_locks as locks on locks.pid = activity.pid and locks.locktype = 'advisory'

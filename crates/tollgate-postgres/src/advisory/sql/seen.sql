-- Everybody who has an advisory lock of this database or waits for it, those of Tollgate and those of others; with $1
-- only of the lock of that name. In the order in which they came, as far as PostgreSQL tells.

select
    locks.pid as process,
    activity.application_name as session,
    starts_with(activity.application_name, 'tollgate session ') as ours,
    locks.granted,
    locks.mode = 'ShareLock' as shared,
    noted.name,
    noted.token,
    noted.details
from pg_locks as locks
    join pg_stat_activity as activity on activity.pid = locks.pid
    left join tollgate.sessions as noted
        on noted.session = activity.application_name
            and noted.key = (locks.classid::bigint << 32 | locks.objid::bigint)
where locks.locktype = 'advisory' and locks.objsubid = 1
    and locks.database = (select oid from pg_database where datname = current_database())
    and case
        when $1::text is null then starts_with(activity.application_name, 'tollgate session ')
        else (locks.classid::bigint << 32 | locks.objid::bigint) = hashtextextended($1, 0)
    end
-- Only from PostgreSQL 14 on there is a column that tells since when somebody waits.
order by noted.token, to_jsonb(locks) ->> 'waitstart', locks.pid

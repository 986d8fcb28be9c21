-- Everybody of Tollgate's who holds a lock or waits for it, with what is written of them.
select s.connection, s.name, s.token, s.details
from tollgate_sessions s
where is_used_lock(s.lock_key) = s.connection
    or s.token is null and s.connection in (select id from information_schema.processlist)
order by s.token, s.connection

-- Removes what was written of the connections $1, and of those that are no more.

delete from tollgate.sessions
where session = any ($1)
    or $2 and not exists (select from pg_stat_activity where application_name = sessions.session)

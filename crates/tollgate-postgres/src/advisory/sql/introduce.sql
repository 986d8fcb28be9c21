-- What each connection that a lock is to hang on is told first.
--
-- Nothing may end it while it waits or is idle, except that nobody is there any more: the server finds that out within
-- 25 s, which is longer than a holder takes to notice it. And no token waits for the disk: which of them are not on it after
-- a crash is seen to by tollgate.wake.

-- What others have made in this database is not called instead of what is meant.
set search_path = pg_catalog, pg_temp;

select set_config(wanted.name, wanted.value, false)
from (values
    ('statement_timeout', '0'),
    ('lock_timeout', '0'),
    ('idle_session_timeout', '0'),
    ('transaction_timeout', '0'),
    ('synchronous_commit', 'off'),
    ('plan_cache_mode', 'force_generic_plan'),
    ('tcp_keepalives_idle', '10'),
    ('tcp_keepalives_interval', '5'),
    ('tcp_keepalives_count', '3'),
    ('tcp_user_timeout', '20000'),
    ('client_connection_check_interval', '5000')
) as wanted (name, value)
-- Not all versions have all of them, nor all systems the last.
where exists (select from pg_settings as known where known.name = wanted.name)
    and (wanted.name <> 'client_connection_check_interval' or version() like '%linux%');

-- A process that was introduced before is one that a pooler lends to several: it would be somebody else's in the next moment.
select pg_backend_pid(), pg_is_in_recovery(), coalesce(current_setting('tollgate_session.label', true), '') <> '' as lent;

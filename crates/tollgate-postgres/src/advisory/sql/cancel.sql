-- Ends what the connection called $2 of the process $1 is waiting for.

select pg_cancel_backend(pid) from pg_stat_activity where pid = $1 and application_name = $2

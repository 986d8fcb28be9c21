-- Ends the connection called $2 of the process $1, and answers with a row as long as it is there.

select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and application_name = $2

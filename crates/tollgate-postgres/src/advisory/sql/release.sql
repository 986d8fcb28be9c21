-- Gives back whatever hangs on the connection called $1: one lock, also if the request for it came twice. No row if the process
-- is another's.

select pg_advisory_unlock_all() where current_setting('tollgate_session.label', true) = $1

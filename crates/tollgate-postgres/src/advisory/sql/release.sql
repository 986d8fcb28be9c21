-- Gives back whatever hangs on the connection: one lock, also if the request for it came twice.

select pg_advisory_unlock_all()

-- Marks the grant with the token $2, whose lock hangs on the connection called $1, as revoked, and notifies that connection. No
-- row if the grant is over.

update tollgate.sessions set revoked = token
where session = $1 and token = $2
returning pg_notify(session, '')

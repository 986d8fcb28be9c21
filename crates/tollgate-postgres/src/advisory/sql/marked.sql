-- A row if the grant with the token $2, whose lock hangs on the connection called $1, was revoked.

select 1 from tollgate.sessions where session = $1 and revoked = $2

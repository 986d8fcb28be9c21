-- Takes the lock $1, or waits for it in PostgreSQL's own queue, and draws a token when it is had. Who had to wait is told by
-- the sign. 0 if the process is not the one that was introduced as $2.

select case
    when current_setting('tollgate_session.label', true) is distinct from $2 then 0
    when pg_try_advisory_lock(hashtextextended($1, 0)) then nextval('tollgate.tokens')
    when pg_advisory_lock(hashtextextended($1, 0))::text = '' then -nextval('tollgate.tokens')
end

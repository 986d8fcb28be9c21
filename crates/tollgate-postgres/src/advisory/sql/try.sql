-- Takes the lock $1 if that is possible now, and a token with it; CASE sees to the order. 0 if the process is not the one that
-- was introduced as $2.

select case
    when current_setting('tollgate_session.label', true) is distinct from $2 then 0
    when pg_try_advisory_lock(hashtextextended($1, 0)) then nextval('tollgate.tokens')
end

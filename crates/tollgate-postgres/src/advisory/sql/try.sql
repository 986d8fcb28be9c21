-- Takes the lock $1 if that is possible now, and a token with it; CASE sees to the order.

select case
    when pg_try_advisory_lock(hashtextextended($1, 0)) then nextval('tollgate.tokens')
end

-- Takes the lock $1, or waits for it in PostgreSQL's own queue, and draws a token when it is had. $2 as in try.sql. Tells
-- whether it had to wait.

select taken.waited, nextval('tollgate.tokens')
from (
    select case when current_setting('tollgate_session.turn')::bigint < $2 then
        case when set_config('tollgate_session.turn', $2::text, false) is not null then
            case
                when pg_try_advisory_lock(hashtextextended($1, 0)) then false
                when pg_advisory_lock(hashtextextended($1, 0))::text = '' then true
            end
        end
    end as waited
    -- Keeps the inside inside: it is done first, and once.
    offset 0
) as taken
where taken.waited is not null

-- Takes the lock $1 if that is possible now, and a token with it. $2 is the number of the turn: one that was had before is a
-- request that came twice, and does nothing.

select case when current_setting('tollgate_session.turn')::bigint < $2 then
    case when set_config('tollgate_session.turn', $2::text, false) is not null then
        case when pg_try_advisory_lock(hashtextextended($1, 0)) then
            nextval('tollgate.tokens')
        end
    end
end

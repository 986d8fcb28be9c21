-- Gives back whatever was taken in the turn $1, which is one lock. Of another turn it touches nothing.

select case when current_setting('tollgate_session.turn')::bigint = $1 then
    pg_advisory_unlock_all()::text = ''
end

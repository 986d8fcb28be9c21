-- Gives back whatever was taken up to the turn $1, which is one lock at most. What was taken in a later one it does not
-- touch. (A turn that failed is undone, and with it its number, but not the lock.)

select case when current_setting('tollgate_session.turn')::bigint <= $1 then
    pg_advisory_unlock_all()::text = ''
end

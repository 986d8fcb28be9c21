-- Writes down who holds or waits: connections $1 with locks $2, tokens $3 and details $4.

insert into tollgate.sessions (session, key, name, token, details)
select noted.session, hashtextextended(noted.name, 0), noted.name, noted.token, noted.details
from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) as noted (session, name, token, details)
on conflict (session) do update
    set key = excluded.key, name = excluded.name, token = excluded.token, details = excluded.details

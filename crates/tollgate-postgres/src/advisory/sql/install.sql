-- What locks of ?style=advisory need in the database beside PostgreSQL's own advisory locks, version 3.
--
-- Safe to run again, and by several at once.

select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('tollgate schema'::pg_catalog.text, 0::pg_catalog.int8));
select set_config('synchronous_commit', 'on', true);

do $do$
begin
    -- "create schema if not exists" asks for the right to create one also where it is there already.
    if not exists (select from pg_namespace where nspname = 'tollgate') then
        create schema tollgate;
    end if;
end
$do$;

-- The tokens, those of leases too.
create sequence if not exists tollgate.tokens maxvalue 9007199254740991;

-- Who holds a lock or waits for it, for people who look. Written some time after the lock was taken, if it is held for
-- that long; who gets the lock is not decided by it. A row counts only while its connection has that lock, or waits for it.
create unlogged table if not exists tollgate.sessions (
    -- What the connection is called in pg_stat_activity. No other one ever is.
    session text primary key,
    key     bigint not null,
    name    text collate "C" not null,
    -- Those who hold it have one.
    token   bigint,
    details text not null,
    -- The token of a grant that an operator broke: its holder is to leave.
    revoked bigint
);

-- Tables of version 2 have no such column.
alter table tollgate.sessions add column if not exists revoked bigint;

-- Empty after a crash, as all such tables are.
create unlogged table if not exists tollgate.awake (since timestamptz not null);

-- Tokens that were drawn shortly before a crash may not be on the disk: after one, the next are far above all of them.
create or replace function tollgate.wake() returns void language plpgsql set search_path = pg_catalog, pg_temp as $fn$
begin
    if exists (select from tollgate.awake) then
        return;
    end if;
    perform pg_advisory_xact_lock(hashtextextended('tollgate.wake', 0));
    if not exists (select from tollgate.awake) then
        perform set_config('synchronous_commit', 'on', true);
        perform setval('tollgate.tokens', least(nextval('tollgate.tokens') + 1000000000, 9007199254740991));
        insert into tollgate.awake values (clock_timestamp());
    end if;
end
$fn$;

-- What tells that all of the above is there.
comment on table tollgate.sessions is 'tollgate advisory 3';

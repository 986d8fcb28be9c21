-- What makes tables refuse those who have lost their lock.
--
-- Call tollgate.admit('orders', 42) as the first statement of a transaction, with the token of your lock. If somebody
-- with a larger token was there before, it fails (TG412), and so does everything else in the transaction. If not,
-- whoever comes later with a smaller one fails. A shared lock's token goes to tollgate.admit_shared.
--
-- select tollgate.guard('orders') has the table itself refuse (TG428) whoever writes to it in a transaction that was not
-- admitted, or only as a reader: several of those may be in together. Partitions that are written to by their own name need a guard of their own.
--
-- Safe to run again, and by several at once. Users need: grant usage on schema tollgate; grant select, insert, update on
-- tollgate.fences.

select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('tollgate schema'::pg_catalog.text, 0::pg_catalog.int8));

do $do$
begin
    -- "create schema if not exists" asks for the right to create one also where it is there already.
    if not exists (select from pg_namespace where nspname = 'tollgate') then
        create schema tollgate;
    end if;
end
$do$;

create table if not exists tollgate.fences (
    resource text collate "C" primary key,
    -- The highest exclusive token that was admitted; 0 if only shared ones were.
    token bigint not null
) with (fillfactor = 50);

create or replace function tollgate.admitted(resource text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $fn$
declare
    -- The number of this transaction: what another one left behind does not count.
    mine constant text := txid_current()::text || ' ';
    noted constant text := coalesce(current_setting('tollgate_fence.admitted', true), '');
begin
    perform set_config(
        'tollgate_fence.admitted',
        case when starts_with(noted, mine) then noted else mine end || md5(resource) || ' ',
        true
    );
end
$fn$;

create or replace function tollgate.refuse_stale(resource text, token bigint, highest bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $fn$
begin
    raise exception 'the token % is stale, % was here already; take the lock again', token, highest
        using errcode = 'TG412', detail = highest::text, hint = resource;
end
$fn$;

create or replace function tollgate.check_token(token bigint) returns void language plpgsql set search_path = pg_catalog, pg_temp as $fn$
begin
    if token is null then
        raise exception 'there is no token; pass the one of the lock that protects this'
            using errcode = 'TG428';
    end if;
    if token not between 1 and 9007199254740991 then
        raise exception 'a fencing token is a number from 1 to 2^53 - 1, not %', token
            using errcode = '22003';
    end if;
end
$fn$;

create or replace function tollgate.admit(resource text, token bigint) returns void language plpgsql set search_path = pg_catalog, pg_temp as $fn$
#variable_conflict use_column
declare
    highest bigint;
begin
    perform tollgate.check_token($2);
    -- Equal is written again, too: that keeps others out until this transaction ends.
    insert into tollgate.fences as mark (resource, token) values ($1, $2)
        on conflict (resource) do update set token = excluded.token where mark.token <= excluded.token;
    if not found then
        select mark.token into highest from tollgate.fences as mark where mark.resource = $1;
        perform tollgate.refuse_stale($1, $2, highest);
    end if;
    perform tollgate.admitted($1);
end
$fn$;

create or replace function tollgate.admit_shared(resource text, token bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $fn$
#variable_conflict use_column
declare
    highest bigint;
begin
    perform tollgate.check_token($2);
    loop
        -- Readers keep the next writer out until their transaction ends, and not each other.
        select mark.token into highest from tollgate.fences as mark where mark.resource = $1 for share;
        exit when found;
        insert into tollgate.fences (resource, token) values ($1, 0) on conflict (resource) do nothing;
    end loop;
    if $2 < highest then
        perform tollgate.refuse_stale($1, $2, highest);
    end if;
    -- Nothing is noted: who shares a lock with others may not write.
end
$fn$;

-- The trigger. Its argument is the resource; without one, being admitted to any resource is enough. Readers are not.
create or replace function tollgate.guarded() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $fn$
declare
    mine constant text := txid_current_if_assigned()::text || ' ';
    noted constant text := coalesce(current_setting('tollgate_fence.admitted', true), '');
    wanted constant text := case when tg_nargs = 0 then '' else md5(tg_argv[0]) end;
begin
    if starts_with(noted, mine) and (wanted = '' or strpos(noted, ' ' || wanted || ' ') > 0) then
        -- What a trigger for each row returns is what is written.
        return case when tg_op = 'DELETE' then old else new end;
    end if;
    raise exception 'table % is guarded, and this transaction has shown no token of an exclusive lock; begin it with select tollgate.admit(%, TOKEN)',
        tg_table_name, quote_literal(coalesce(tg_argv[0], 'RESOURCE'))
        using errcode = 'TG428';
end
$fn$;

-- Puts the trigger on a table, which is found as its caller finds tables: so this one keeps the caller's search path.
-- The resource is called like the table, as it is written, if it is left out.
create or replace function tollgate.guard(guarded text, resource text default null) returns void
language plpgsql as $fn$
begin
    perform tollgate.unguard(guarded);
    execute pg_catalog.format(
        'create trigger tollgate_guarded before insert or update or delete or truncate on %s '
        'for each statement execute function tollgate.guarded(%L)',
        guarded::pg_catalog.regclass, coalesce(resource, guarded)
    );
end
$fn$;

create or replace function tollgate.unguard(guarded text) returns void language plpgsql as $fn$
begin
    execute pg_catalog.format('drop trigger if exists tollgate_guarded on %s', guarded::pg_catalog.regclass);
end
$fn$;

-- What tells that all of the above is there.
comment on table tollgate.fences is 'tollgate fence 3';

-- The tables and functions of Tollgate's locks in PostgreSQL, version 5.
--
-- Safe to run again: what is there stays, functions are replaced. `tollgate sql-schema URL` prints this text with the
-- schema and the prefix of that URL; here they are called `tollgate` and nothing.
--
-- A lock that one exclusive holder has and nobody else wants is one row of `locks`, taken and given back by one UPDATE
-- each, of which there is nothing here: both are plain statements of the client. Everything else is one of these
-- functions. Each begins by locking the row of its lock, so that whatever it reads after that is as the last one left
-- it: a single statement that waits for a row still reads everything else as it was before, and would let two in.

create schema if not exists tollgate;

create table if not exists tollgate.version (version integer not null);

-- The tokens of all locks. Drawn only by whoever has locked the row of the lock.
create sequence if not exists tollgate.tokens maxvalue 9007199254740991;

-- One row for each lock that is held or waited for, or was until lately.
create table if not exists tollgate.locks (
    name     text collate "C" primary key,
    -- The exclusive holder, if there is one, and what is known of it.
    owner    uuid,
    token    bigint,
    -- By this server's clock. If nobody is in: when somebody was last.
    expires  timestamptz,
    ttl      bigint,
    -- When the holder sent the claim, by its own clock. It goes back to it unread.
    sent     bigint,
    details  text,
    -- How many of this lock's claims are in, and how many wait.
    holders  integer not null default 0,
    waiters  integer not null default 0,
    -- The last ticket that was given, the last that was let in, and the first of those who are in together.
    last     bigint not null default 0,
    served   bigint not null default 0,
    since    bigint not null default 0
) with (fillfactor = 50);

-- Shared and permit holders, and everybody who waits.
create table if not exists tollgate.claims (
    name     text collate "C" not null,
    ticket   bigint not null,
    owner    uuid not null,
    -- x, s or p, and for a permit how many may be in.
    mode     "char" not null,
    places   bigint not null,
    -- Those who have one are in.
    token    bigint,
    expires  timestamptz not null,
    ttl      bigint not null,
    sent     bigint not null,
    -- Where its client listens.
    channel  text not null,
    details  text not null,
    primary key (name, ticket)
);

create unique index if not exists claims_owner on tollgate.claims (owner);

-- Renewals of exclusive holders that were not to be written into the lock's row, because somebody sat on it.
create table if not exists tollgate.renewals (
    owner    uuid primary key,
    expires  timestamptz not null
);

-- Owners whose locks an operator broke, for as long as they may still want to renew: they are not renewed any more.
create table if not exists tollgate.revocations (
    owner    uuid primary key,
    until    timestamptz not null
);

-- Tables that an earlier version had not: the roles that may use the table of locks may use them, too.
do $$
declare
    may record;
begin
    for may in
        select x.privilege_type, x.grantee
        from pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) x
        where c.oid = 'tollgate.locks'::pg_catalog.regclass and x.grantee <> c.relowner
            and x.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
    loop
        execute pg_catalog.format(
            'grant %s on tollgate.claims, tollgate.renewals, tollgate.revocations to %s', may.privilege_type,
            case may.grantee when 0 then 'public' else may.grantee::pg_catalog.regrole::text end
        );
    end loop;
end $$;

-- Locks the row of a lock, and makes it if there is none.
create or replace function tollgate.locked(p_name text) returns tollgate.locks
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    l tollgate.locks;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'Tollgate''s functions must see what others have done: they run in READ COMMITTED only'
            using errcode = 'TG001';
    end if;
    -- Somebody may sit on the row.
    perform set_config('lock_timeout', '1s', true);
    loop
        select * into l from tollgate.locks where name = p_name for update;
        exit when found;
        insert into tollgate.locks (name) values (p_name) on conflict do nothing;
    end loop;
    return l;
end $$;

-- Keeps others from judging a holder, and it from being renewed, at the same time.
create or replace function tollgate.alone_with(p_owner uuid) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select pg_advisory_xact_lock(hashtextextended(p_owner::text, 7064))
$$;

-- Whether the exclusive holder of a lock that we have locked is still in. If its time is over, it may have been renewed
-- beside the row.
create or replace function tollgate.judged(l tollgate.locks, at timestamptz) returns tollgate.locks
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    renewed timestamptz;
begin
    if l.owner is null or l.expires > at then
        return l;
    end if;
    perform tollgate.alone_with(l.owner);
    delete from tollgate.renewals where owner = l.owner returning expires into renewed;
    if renewed > at then
        l.expires := renewed;
    else
        l.owner := null;
    end if;
    return l;
end $$;

-- Writes down what became of a lock, if something did.
create or replace function tollgate.written(l tollgate.locks, before tollgate.locks) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if l is not distinct from before then
        return;
    end if;
    update tollgate.locks set
        owner = l.owner, token = l.token, expires = l.expires, ttl = l.ttl, sent = l.sent, details = l.details,
        holders = l.holders, waiters = l.waiters, last = l.last, served = l.served, since = l.since
    where name = l.name;
end $$;

-- Forgets those who are in together and have not said so for too long. Nobody reads all of them who need not: one who
-- lives is enough to keep others out, and only a permit has to count. Who is renewed in this moment is not deleted.
create or replace function tollgate.without_the_dead(l tollgate.locks, at timestamptz, all_of_them boolean) returns tollgate.locks
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if l.holders = 0 or not all_of_them and exists (
        select from tollgate.claims
        where name = l.name and ticket between l.since and l.served and expires > at
    ) then
        return l;
    end if;
    delete from tollgate.claims
    where name = l.name and ticket between l.since and l.served and token is not null and expires <= at;
    -- Counted anew: should somebody have deleted rows of ours, that heals by itself.
    select count(*) into l.holders from tollgate.claims
    where name = l.name and ticket between l.since and l.served and token is not null;
    return l;
end $$;

-- The one rule: whether a claim may join those who are in. Those have one mode.
create or replace function tollgate.fits(l tollgate.locks, p_mode "char", p_places bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    inside record;
begin
    if l.owner is not null then
        return false;
    elsif l.holders = 0 then
        return true;
    elsif p_mode = 'x' then
        return false;
    end if;
    select mode, places into inside from tollgate.claims
    where name = l.name and ticket between l.since and l.served and token is not null limit 1;
    return inside.mode = p_mode
        and (p_mode = 's' or inside.places = p_places and l.holders < p_places);
end $$;

-- Lets those in whose turn it is, in the order in which they came, and tells them.
create or replace function tollgate.advanced(l tollgate.locks, at timestamptz) returns tollgate.locks
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    c tollgate.claims;
begin
    while l.waiters > 0 and l.owner is null loop
        -- Locked: one that is given up or refreshed beside the row in this moment is seen as it is then.
        select * into c from tollgate.claims
        where name = l.name and ticket > l.served order by ticket limit 1 for update;
        if not found then
            l.waiters := 0;
        elsif c.expires <= at then
            delete from tollgate.claims where name = l.name and ticket = c.ticket;
            l.waiters := l.waiters - 1;
        else
            l := tollgate.without_the_dead(l, at, c.mode = 'p');
            exit when not tollgate.fits(l, c.mode, c.places);
            c.token := nextval('tollgate.tokens');
            l.waiters := l.waiters - 1;
            if c.mode = 'x' then
                delete from tollgate.claims where name = l.name and ticket = c.ticket;
                l.owner := c.owner;
                l.token := c.token;
                l.expires := c.expires;
                l.ttl := c.ttl;
                l.sent := c.sent;
                l.details := c.details;
            else
                update tollgate.claims set token = c.token where name = l.name and ticket = c.ticket;
                l.since := case when l.holders = 0 then c.ticket else l.since end;
                l.holders := l.holders + 1;
            end if;
            l.served := c.ticket;
            perform pg_notify(c.channel, replace(c.owner::text, '-', '') || ' ' || c.token || ' ' || c.sent);
        end if;
    end loop;
    return l;
end $$;

-- Takes the lock, or a place in its queue, or looks again how a claim stands that waits with a ticket.
create or replace function tollgate.acquire(
    p_name text, p_owner uuid, p_mode "char", p_places bigint, p_ttl bigint, p_sent bigint, p_channel text,
    p_details text, p_waits boolean, p_ticket bigint,
    out outcome "char", out token bigint, out sent bigint, out ticket bigint, out ahead bigint, out free_in bigint,
    out age bigint
)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    l tollgate.locks := tollgate.locked(p_name);
    before tollgate.locks := l;
    at timestamptz := clock_timestamp();
    ends timestamptz := at + p_ttl * interval '1 ms';
    own tollgate.claims;
begin
    age := date_part('epoch', at) * 1000000;
    l := tollgate.judged(l, at);
    -- It may be in already: this is asked again, or it was let in and has not heard of it.
    if l.owner = p_owner then
        perform tollgate.written(l, before);
        outcome := 'g'; token := l.token; sent := l.sent;
        return;
    end if;
    if l.holders + l.waiters > 0 then
        l := tollgate.without_the_dead(l, at, p_mode = 'p');
        select * into own from tollgate.claims c
        where c.owner = p_owner and c.name = p_name;
        if found and own.token is null and p_ticket is not null then
            -- Late or not, it is alive.
            update tollgate.claims c set expires = ends, sent = p_sent where c.name = p_name and c.ticket = own.ticket;
            own.expires := ends;
        end if;
        l := tollgate.advanced(l, at);
        if l.owner = p_owner then
            perform tollgate.written(l, before);
            outcome := 'g'; token := l.token; sent := l.sent;
            return;
        end if;
        if own.ticket is not null then
            select * into own from tollgate.claims c where c.name = p_name and c.ticket = own.ticket;
        end if;
        if own.token is not null then
            perform tollgate.written(l, before);
            outcome := 'g'; token := own.token; sent := own.sent;
            return;
        end if;
    end if;
    if own.ticket is null and l.waiters = 0 and tollgate.fits(l, p_mode, p_places) then
        token := nextval('tollgate.tokens');
        if p_mode = 'x' then
            l.owner := p_owner; l.token := token; l.expires := ends; l.ttl := p_ttl; l.sent := p_sent;
            l.details := p_details;
        else
            l.last := l.last + 1;
            l.served := l.last;
            l.since := case when l.holders = 0 then l.last else l.since end;
            l.holders := l.holders + 1;
            l.expires := at;
            insert into tollgate.claims values
                (p_name, l.last, p_owner, p_mode, p_places, token, ends, p_ttl, p_sent, p_channel, p_details);
        end if;
        perform tollgate.written(l, before);
        outcome := 'g'; sent := p_sent;
        return;
    end if;
    -- When the one that is in ends by itself; of many, whoever is next finds out.
    free_in := case
        when l.owner is not null then extract(epoch from l.expires - at) * 1000
        when l.holders > 0 then (
            select extract(epoch from min(c.expires) - at) * 1000 from (
                select c.expires from tollgate.claims c
                where c.name = p_name and c.ticket between l.since and l.served and c.token is not null and c.expires > at limit 100
            ) c
        ) end;
    if l.served = before.served then
        -- Nobody was let in, and a place in a queue need not outlast a crash.
        perform set_config('synchronous_commit', 'off', true);
    end if;
    if not p_waits then
        perform tollgate.written(l, before);
        outcome := 'b'; ahead := l.waiters + l.holders + (l.owner is not null)::integer;
        return;
    end if;
    if own.ticket is null then
        l.last := l.last + 1;
        l.waiters := l.waiters + 1;
        own.ticket := l.last;
        insert into tollgate.claims values
            (p_name, l.last, p_owner, p_mode, p_places, null, ends, p_ttl, p_sent, p_channel, p_details);
    end if;
    perform tollgate.written(l, before);
    outcome := 'q'; ticket := own.ticket; ahead := least(own.ticket - l.served - 1, l.waiters - 1);
end $$;

-- Renews an exclusive grant, by its owner, while somebody sits on the lock's row. Answers whether it is the holder.
create or replace function tollgate.extend_beside(p_name text, p_owner uuid, p_ttl bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    at timestamptz;
begin
    perform set_config('lock_timeout', '1s', true);
    perform tollgate.alone_with(p_owner);
    at := clock_timestamp();
    perform from tollgate.locks l left join tollgate.renewals r on r.owner = l.owner
    where l.name = p_name and l.owner = p_owner and greatest(l.expires, r.expires) > at
        and not exists (select from tollgate.revocations where owner = p_owner);
    if not found then
        return false;
    end if;
    insert into tollgate.renewals values (p_owner, at + p_ttl * interval '1 ms')
    on conflict (owner) do update set expires = excluded.expires;
    return true;
end $$;

-- Gives a lock back, by its owner, and hands it on. Answers whether it was its. A claim that waits leaves, if that is
-- asked for.
create or replace function tollgate.leave(p_name text, p_owner uuid, p_waits_too boolean) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    l tollgate.locks := tollgate.locked(p_name);
    at timestamptz := clock_timestamp();
    before tollgate.locks := l;
    own tollgate.claims;
    was_in boolean := false;
begin
    l := tollgate.judged(l, at);
    if l.owner = p_owner then
        was_in := true;
        l.owner := null;
    elsif l.holders + l.waiters > 0 then
        delete from tollgate.claims
        where owner = p_owner and name = p_name and (token is not null or p_waits_too)
        returning * into own;
        if own.token is not null then
            was_in := own.expires > at;
            l.holders := l.holders - 1;
        elsif own.ticket is not null then
            l.waiters := l.waiters - 1;
        end if;
        l := tollgate.without_the_dead(l, at, false);
    end if;
    l := tollgate.advanced(l, at);
    if l.owner is null then
        l.expires := at;
    end if;
    if l.served = before.served then
        -- Handed to nobody: after a crash it is held until its ttl is over, which is no harm.
        perform set_config('synchronous_commit', 'off', true);
    end if;
    perform tollgate.written(l, before);
    return was_in;
end $$;

-- Breaks the lock of the holder with this token: asks it to leave, or takes the lock away and hands it on. Answers 0 if nobody
-- holds it with that token, 1 if it was taken away, 2 if its holder is asked to leave.
do $$
begin
    -- As versions before 4 have it. `if exists` would print a notice.
    drop function tollgate.revoke(text, bigint);
exception when undefined_function then
    null;
end;
$$;
create or replace function tollgate.revoke(p_name text, p_token bigint, p_by_force boolean) returns integer
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    l tollgate.locks := tollgate.locked(p_name);
    before tollgate.locks := l;
    at timestamptz := clock_timestamp();
    victim uuid;
    victims_ttl bigint;
begin
    l := tollgate.judged(l, at);
    if l.owner is not null and l.token = p_token then
        perform tollgate.alone_with(l.owner);
        victim := l.owner;
        victims_ttl := l.ttl;
    elsif l.holders > 0 then
        select owner, ttl into victim, victims_ttl from tollgate.claims
        where name = p_name and ticket between l.since and l.served and token = p_token and expires > at;
    end if;
    if victim is not null then
        insert into tollgate.revocations values (victim, at + 2 * victims_ttl * interval '1 ms')
        on conflict (owner) do update set until = excluded.until;
        perform pg_notify('tollgate_revoked', replace(victim::text, '-', '') || ' revoked');
        if p_by_force and l.owner = victim then
            l.owner := null;
        elsif p_by_force then
            delete from tollgate.claims where name = p_name and owner = victim;
            l.holders := l.holders - 1;
        end if;
    end if;
    l := tollgate.advanced(l, at);
    perform tollgate.written(l, before);
    return case when victim is null then 0 when p_by_force then 1 else 2 end;
end $$;

-- Makes all later tokens larger than this one.
create or replace function tollgate.raise_floor(p_floor bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtextextended('tollgate.raise_floor', 0));
    if p_floor >= (select last_value from tollgate.tokens) then
        -- Tokens may be drawn meanwhile: by far not as many as are left out here.
        perform setval('tollgate.tokens', least(p_floor + 1000000, 9007199254740991));
    end if;
end $$;

-- Removes rows of locks that nobody used for a minute, and claims of those who are gone. Answers how many.
create or replace function tollgate.sweep() returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    at timestamptz := clock_timestamp() - interval '1 minute';
    gone bigint;
    n text;
begin
    delete from tollgate.renewals where expires < at;
    delete from tollgate.revocations where until < at;
    with idle as (
        select name from tollgate.locks l
        where coalesce(expires, '-infinity') < at and holders = 0 and waiters = 0
            and not exists (select from tollgate.renewals r where r.owner = l.owner)
        limit 10000 for update skip locked
    )
    delete from tollgate.locks l using idle where l.name = idle.name;
    get diagnostics gone = row_count;
    -- Crowds that died together: nobody is left to notice.
    for n in
        select c.name from tollgate.claims c group by c.name having max(c.expires) < at limit 100
    loop
        perform tollgate.leave(n, '00000000-0000-0000-0000-000000000000', false);
    end loop;
    return gone;
end $$;

insert into tollgate.version select 5 where not exists (select from tollgate.version);
update tollgate.version set version = 5 where version < 5;

-- The tables and procedures of Tollgate's locks in MySQL and MariaDB, version 3.
--
-- Safe to run again: what is there stays, procedures are made anew. `tollgate sql-schema URL` prints this text with the
-- prefix of that URL; here it is `tollgate_`. Where tokens come from is in `tokens_mariadb.sql` or `tokens_mysql.sql`.
--
-- A lock that one exclusive holder has and nobody else wants is one row of `locks`, taken and given back by one UPDATE
-- each, of which there is nothing here: both are plain statements of the client. Everything else is one of these
-- procedures. Each begins by locking the row of its lock, so that whatever it reads after that is as the last one left
-- it. Times are microseconds since 1970 by this server's clock, and bytes are compared as they are: no collation, no
-- time zone decides anything.

create table if not exists tollgate_version (
    version  integer not null primary key,
    -- Where tokens come from: `mariadb` a sequence, `mysql` the rows themselves.
    dialect  varchar(10) not null
) engine = innodb;

-- One row for each lock that is held or waited for, or was until lately. In this row format a missing owner takes as much
-- room as one that is there: locks are taken and given back where they stand, without moving the row.
create table if not exists tollgate_locks (
    name     varbinary(512) not null primary key,
    -- The exclusive holder, if there is one, and what is known of it.
    owner    binary(32),
    token    bigint,
    -- If nobody is in: when somebody was last.
    expires  bigint,
    ttl      bigint,
    -- When the holder sent the claim, by its own clock. It goes back to it unread.
    sent     bigint,
    details  blob,
    -- How many of this lock's claims are in, and how many wait.
    holders  integer not null default 0,
    waiters  integer not null default 0,
    -- The last ticket that was given, the last that was let in, and the first of those who are in together.
    last     bigint not null default 0,
    served   bigint not null default 0,
    since    bigint not null default 0,
    -- The last token, where rows count them.
    counter  bigint not null default 0
) engine = innodb row_format = redundant;

-- Shared and permit holders, and everybody who waits.
create table if not exists tollgate_claims (
    name     varbinary(512) not null,
    ticket   bigint not null,
    owner    varbinary(32) not null,
    -- x, s or p, and for a permit how many may be in.
    mode     binary(1) not null,
    places   bigint not null,
    -- Those who have one are in.
    token    bigint,
    expires  bigint not null,
    ttl      bigint not null,
    sent     bigint not null,
    details  blob not null,
    primary key (name, ticket),
    unique key tollgate_claims_owner (owner)
) engine = innodb;

-- Renewals of exclusive holders that were not to be written into the lock's row, because somebody sat on it.
create table if not exists tollgate_renewals (
    owner    varbinary(32) not null primary key,
    expires  bigint not null
) engine = innodb;

-- Owners whose locks an operator broke, for as long as they may still want to renew: they are not renewed any more. A lock of
-- ?style=session has no owner id there, but a digest of its connection, token and name.
create table if not exists tollgate_revocations (
    owner    varbinary(32) not null primary key,
    until    bigint not null
) engine = innodb;

-- Begins a transaction and locks the row of a lock, and makes it if there is none.
drop procedure if exists tollgate_lock_row;
create procedure tollgate_lock_row(p_name varbinary(512))
sql security invoker
begin
    declare found integer default 0;
    -- Whoever does not get the row has begun nothing.
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    set transaction isolation level read committed;
    start transaction;
    select count(*) into found from tollgate_locks where name = p_name for update;
    while found = 0 do
        -- By itself: two who made it within their transactions would wait for each other.
        rollback;
        insert ignore into tollgate_locks (name) values (p_name);
        set transaction isolation level read committed;
        start transaction;
        select count(*) into found from tollgate_locks where name = p_name for update;
    end while;
end;

-- Forgets an exclusive holder that has not said for too long that it lives, also not beside the row. The row of its renewals is
-- locked meanwhile: who renews in this moment comes before, and is seen, or comes too late, and hears of it.
drop procedure if exists tollgate_judge;
create procedure tollgate_judge(p_name varbinary(512), p_at bigint)
sql security invoker
begin
    declare v_owner varbinary(32);
    declare v_expires, v_renewed bigint;
    select owner, expires into v_owner, v_expires from tollgate_locks where name = p_name;
    if v_owner is not null and v_expires <= p_at then
        insert into tollgate_renewals values (v_owner, 0) on duplicate key update expires = expires;
        select expires into v_renewed from tollgate_renewals where owner = v_owner for update;
        delete from tollgate_renewals where owner = v_owner;
        if v_renewed > p_at then
            update tollgate_locks set expires = v_renewed where name = p_name;
        else
            update tollgate_locks set owner = null where name = p_name;
        end if;
    end if;
end;

-- Forgets those who are in and have not said so for too long. Nobody reads all of them who need not: one who lives is
-- enough to keep others out, and only a permit has to count.
drop procedure if exists tollgate_bury;
create procedure tollgate_bury(p_name varbinary(512), p_at bigint, p_all boolean)
sql security invoker
begin
    declare v_holders integer;
    declare v_since, v_served bigint;
    call tollgate_judge(p_name, p_at);
    select holders, since, served into v_holders, v_since, v_served from tollgate_locks where name = p_name;
    if v_holders > 0 and (p_all or not exists (
        select 1 from tollgate_claims
        where name = p_name and ticket between v_since and v_served and token is not null and expires > p_at
    )) then
        delete from tollgate_claims
        where name = p_name and ticket between v_since and v_served and token is not null and expires <= p_at;
        -- Counted anew: should somebody have deleted rows of ours, that heals by itself.
        select count(*) into v_holders from tollgate_claims
        where name = p_name and ticket between v_since and v_served and token is not null;
        update tollgate_locks set holders = v_holders where name = p_name;
    end if;
end;

-- The one rule: whether a claim may join those who are in. Those have one mode.
drop procedure if exists tollgate_fits;
create procedure tollgate_fits(p_name varbinary(512), p_mode binary(1), p_places bigint, out p_fits boolean)
sql security invoker
begin
    declare v_owner varbinary(32);
    declare v_holders integer;
    declare v_since, v_served, v_places bigint;
    declare v_mode binary(1);
    select owner, holders, since, served into v_owner, v_holders, v_since, v_served
    from tollgate_locks where name = p_name;
    if v_owner is not null then
        set p_fits = false;
    elseif v_holders = 0 then
        set p_fits = true;
    elseif p_mode = 'x' then
        set p_fits = false;
    else
        select mode, places into v_mode, v_places from tollgate_claims
        where name = p_name and ticket between v_since and v_served and token is not null limit 1;
        set p_fits = v_mode = p_mode and (p_mode = 's' or v_places = p_places and v_holders < p_places);
    end if;
end;

-- Lets those in whose turn it is, in the order in which they came. They look for themselves.
drop procedure if exists tollgate_advance;
create procedure tollgate_advance(p_name varbinary(512), p_at bigint)
sql security invoker
queue: begin
    declare v_owner, c_owner varbinary(32);
    declare v_waiters integer;
    declare v_served, c_ticket, c_places, c_expires, c_ttl, c_sent, c_token bigint;
    declare c_mode binary(1);
    declare c_details blob;
    declare v_fits boolean;
    loop
        select owner, waiters, served into v_owner, v_waiters, v_served from tollgate_locks where name = p_name;
        if v_waiters = 0 or v_owner is not null then
            leave queue;
        end if;
        set c_ticket = null;
        -- Locked: a waiter that says now that it lives is not to be taken for dead.
        select ticket, owner, mode, places, expires, ttl, sent, details
        into c_ticket, c_owner, c_mode, c_places, c_expires, c_ttl, c_sent, c_details
        from tollgate_claims where name = p_name and ticket > v_served order by ticket limit 1 for update;
        if c_ticket is null then
            update tollgate_locks set waiters = 0 where name = p_name;
            leave queue;
        elseif c_expires <= p_at then
            delete from tollgate_claims where name = p_name and ticket = c_ticket;
            update tollgate_locks set waiters = waiters - 1 where name = p_name;
        else
            call tollgate_bury(p_name, p_at, c_mode = 'p');
            call tollgate_fits(p_name, c_mode, c_places, v_fits);
            if not v_fits then
                leave queue;
            end if;
            call tollgate_draw(p_name, c_token);
            if c_mode = 'x' then
                delete from tollgate_claims where name = p_name and ticket = c_ticket;
                update tollgate_locks
                set owner = c_owner, token = c_token, expires = c_expires, ttl = c_ttl, sent = c_sent,
                    details = c_details, waiters = waiters - 1, served = c_ticket
                where name = p_name;
            else
                update tollgate_claims set token = c_token where name = p_name and ticket = c_ticket;
                update tollgate_locks
                set since = if(holders = 0, c_ticket, since), holders = holders + 1, waiters = waiters - 1,
                    served = c_ticket, expires = p_at
                where name = p_name;
            end if;
        end if;
    end loop;
end;

-- Takes the lock, or a place in its queue, or looks again how a claim stands that waits with a ticket.
drop procedure if exists tollgate_acquire;
create procedure tollgate_acquire(
    p_name varbinary(512), p_owner varbinary(32), p_mode binary(1), p_places bigint, p_ttl bigint, p_sent bigint,
    p_details blob, p_waits boolean, p_ticket bigint
)
sql security invoker
begin
    declare v_owner varbinary(32);
    declare v_holders, v_waiters integer;
    declare v_token, v_expires, v_sent, v_last, v_served, v_since, own_ticket, own_token, own_sent bigint;
    declare at, ends, free_in, ahead bigint;
    declare outcome char(1);
    declare v_fits boolean;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_lock_row(p_name);
    set at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    set ends = at + p_ttl * 1000;
    call tollgate_judge(p_name, at);
    answer: begin
        select owner, token, expires, sent, holders, waiters
        into v_owner, v_token, v_expires, v_sent, v_holders, v_waiters
        from tollgate_locks where name = p_name;
        -- It may be in already: this is asked again, or it was let in and has not heard of it.
        if v_owner = p_owner and v_expires > at then
            set outcome = 'g', own_token = v_token, own_sent = v_sent;
            if p_ticket is not null then
                -- Others see a commit before it is on the disk. This one waits until all before it are.
                update tollgate_locks set expires = ends, sent = p_sent where name = p_name;
                set own_sent = p_sent;
            end if;
            leave answer;
        end if;
        if v_holders + v_waiters > 0 then
            call tollgate_bury(p_name, at, p_mode = 'p');
            select ticket, token into own_ticket, own_token from tollgate_claims
            where owner = p_owner and name = p_name for update;
            if own_ticket is not null and p_ticket is not null then
                -- Late or not, it is alive. If it is in, this says so on the disk.
                update tollgate_claims set expires = ends, sent = p_sent where name = p_name and ticket = own_ticket;
            end if;
            call tollgate_advance(p_name, at);
            select owner, token, sent into v_owner, v_token, v_sent from tollgate_locks where name = p_name;
            if v_owner = p_owner then
                set outcome = 'g', own_token = v_token, own_sent = v_sent;
                leave answer;
            end if;
            if own_ticket is not null then
                select token, sent into own_token, own_sent from tollgate_claims
                where name = p_name and ticket = own_ticket;
                if own_token is not null then
                    set outcome = 'g';
                    leave answer;
                end if;
            end if;
        end if;
        select owner, expires, holders, waiters, last, served, since
        into v_owner, v_expires, v_holders, v_waiters, v_last, v_served, v_since
        from tollgate_locks where name = p_name;
        set v_fits = false;
        if own_ticket is null and v_waiters = 0 then
            call tollgate_fits(p_name, p_mode, p_places, v_fits);
        end if;
        if v_fits then
            call tollgate_draw(p_name, own_token);
            if p_mode = 'x' then
                update tollgate_locks
                set owner = p_owner, token = own_token, expires = ends, ttl = p_ttl, sent = p_sent, details = p_details
                where name = p_name;
            else
                insert into tollgate_claims values
                    (p_name, v_last + 1, p_owner, p_mode, p_places, own_token, ends, p_ttl, p_sent, p_details);
                update tollgate_locks
                set since = if(holders = 0, v_last + 1, since), holders = holders + 1, last = v_last + 1,
                    served = v_last + 1, expires = at
                where name = p_name;
            end if;
            set outcome = 'g', own_sent = p_sent;
            leave answer;
        end if;
        -- When the one that is in ends by itself; of many, whoever is next finds out.
        if v_owner is not null then
            set free_in = v_expires - at;
        elseif v_holders > 0 then
            select min(c.expires) - at into free_in from (
                select expires from tollgate_claims
                where name = p_name and ticket between v_since and v_served and token is not null limit 100
            ) c;
        end if;
        if not p_waits then
            set outcome = 'b', ahead = v_waiters + v_holders + (v_owner is not null);
            leave answer;
        end if;
        if own_ticket is null then
            set own_ticket = v_last + 1, v_waiters = v_waiters + 1;
            insert into tollgate_claims values
                (p_name, own_ticket, p_owner, p_mode, p_places, null, ends, p_ttl, p_sent, p_details);
            update tollgate_locks set last = own_ticket, waiters = v_waiters where name = p_name;
        end if;
        set outcome = 'q', ahead = least(own_ticket - v_served - 1, v_waiters - 1);
    end;
    commit;
    select outcome, own_token as token, own_sent as sent, own_ticket as ticket, ahead,
        free_in div 1000 as free_in, at as age;
end;

-- Renews a grant, by its owner. Answers whether there is one.
drop procedure if exists tollgate_extend;
create procedure tollgate_extend(p_name varbinary(512), p_owner varbinary(32), p_ttl bigint, p_details blob)
sql security invoker
begin
    declare v_owner varbinary(32);
    declare v_holders integer;
    declare at, v_expires, v_since, v_served, own_ticket bigint;
    declare was_in boolean default false;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_lock_row(p_name);
    set at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call tollgate_judge(p_name, at);
    select owner, expires, holders, since, served into v_owner, v_expires, v_holders, v_since, v_served
    from tollgate_locks where name = p_name;
    if exists (select 1 from tollgate_revocations where owner = p_owner) then
        set was_in = false;
    elseif v_owner = p_owner and v_expires > at then
        set was_in = true;
        update tollgate_locks
        set expires = at + p_ttl * 1000, ttl = p_ttl, details = if(
                coalesce(cast(json_extract(convert(p_details using utf8mb4), '$.revision') as unsigned), 0)
                    >= coalesce(cast(json_extract(convert(details using utf8mb4), '$.revision') as unsigned), 0),
                coalesce(p_details, details), details
            )
        where name = p_name;
    elseif v_holders > 0 then
        select ticket into own_ticket from tollgate_claims
        where owner = p_owner and name = p_name and token is not null and expires > at for update;
        set was_in = own_ticket is not null;
        update tollgate_claims
        set expires = at + p_ttl * 1000, ttl = p_ttl, details = if(
                coalesce(cast(json_extract(convert(p_details using utf8mb4), '$.revision') as unsigned), 0)
                    >= coalesce(cast(json_extract(convert(details using utf8mb4), '$.revision') as unsigned), 0),
                coalesce(p_details, details), details
            )
        where name = p_name and ticket = own_ticket;
    end if;
    commit;
    select was_in;
end;

-- Renews the grant of an exclusive holder without the row of the lock, on which somebody sits. Answers whether there is one.
drop procedure if exists tollgate_extend_beside;
create procedure tollgate_extend_beside(p_name varbinary(512), p_owner varbinary(32), p_ttl bigint)
sql security invoker
begin
    declare at bigint;
    declare was_in boolean default false;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    set transaction isolation level read committed;
    start transaction;
    insert into tollgate_renewals values (p_owner, 0) on duplicate key update expires = expires;
    set at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    -- A plain select: anything else would wait for the row.
    select count(*) into was_in from tollgate_locks l join tollgate_renewals r on r.owner = l.owner
    where l.name = p_name and l.owner = p_owner and greatest(l.expires, r.expires) > at
        and not exists (select 1 from tollgate_revocations where owner = p_owner);
    if was_in then
        update tollgate_renewals set expires = at + p_ttl * 1000 where owner = p_owner;
    else
        delete from tollgate_renewals where owner = p_owner;
    end if;
    commit;
    select was_in;
end;

-- Gives a lock back, by its owner, and hands it on. Answers whether it was its. A claim that waits leaves, if that is
-- asked for.
drop procedure if exists tollgate_leave;
create procedure tollgate_leave(p_name varbinary(512), p_owner varbinary(32), p_waits_too boolean)
sql security invoker
begin
    declare v_owner varbinary(32);
    declare v_holders, v_waiters integer;
    declare at, v_expires, own_ticket, own_token, own_expires bigint;
    declare was_in boolean default false;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_lock_row(p_name);
    set at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call tollgate_judge(p_name, at);
    select owner, expires, holders, waiters into v_owner, v_expires, v_holders, v_waiters
    from tollgate_locks where name = p_name;
    if v_owner = p_owner then
        set was_in = v_expires > at;
        update tollgate_locks set owner = null where name = p_name;
    elseif v_holders + v_waiters > 0 then
        select ticket, token, expires into own_ticket, own_token, own_expires from tollgate_claims
        where owner = p_owner and name = p_name and (token is not null or p_waits_too) for update;
        if own_ticket is not null then
            delete from tollgate_claims where name = p_name and ticket = own_ticket;
            set was_in = own_token is not null and own_expires > at;
            update tollgate_locks
            set holders = holders - (own_token is not null), waiters = waiters - (own_token is null)
            where name = p_name;
        end if;
        call tollgate_bury(p_name, at, false);
    end if;
    call tollgate_advance(p_name, at);
    update tollgate_locks set expires = at where name = p_name and owner is null;
    commit;
    select was_in;
end;

-- Breaks the lock of whoever holds it with this token, and hands it on. Answers whether somebody did.
drop procedure if exists tollgate_revoke;
create procedure tollgate_revoke(p_name varbinary(512), p_token bigint, p_by_force boolean)
sql security invoker
begin
    declare v_owner, victim varbinary(32);
    declare v_holders integer;
    declare at, v_token, v_expires, v_ttl, v_since, v_served, own_ticket bigint;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_lock_row(p_name);
    set at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6));
    call tollgate_judge(p_name, at);
    select owner, token, expires, ttl, holders, since, served
    into v_owner, v_token, v_expires, v_ttl, v_holders, v_since, v_served from tollgate_locks where name = p_name;
    if v_owner is not null and v_token = p_token and v_expires > at then
        set victim = v_owner;
    elseif v_holders > 0 then
        select ticket, owner, ttl into own_ticket, victim, v_ttl from tollgate_claims
        where name = p_name and ticket between v_since and v_served and token = p_token and expires > at for update;
    end if;
    if victim is not null then
        insert into tollgate_revocations values (victim, at + 2 * v_ttl * 1000)
        on duplicate key update until = at + 2 * v_ttl * 1000;
    end if;
    if victim is not null and p_by_force and own_ticket is null then
        update tollgate_locks set owner = null, expires = at where name = p_name;
    elseif victim is not null and p_by_force then
        delete from tollgate_claims where name = p_name and ticket = own_ticket;
        update tollgate_locks set holders = holders - 1 where name = p_name;
    end if;
    call tollgate_advance(p_name, at);
    commit;
    select if(victim is null, 0, if(p_by_force, 1, 2));
end;

-- Lets crowds go that died together: nobody is left to notice.
drop procedure if exists tollgate_bury_crowds;
create procedure tollgate_bury_crowds()
sql security invoker
begin
    declare v_name varbinary(512);
    declare left_to_do integer default 100;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    crowds: while left_to_do > 0 do
        set left_to_do = left_to_do - 1, v_name = null;
        select name into v_name from tollgate_claims
        group by name
        having max(expires) < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - 60000000
        limit 1;
        if v_name is null then
            leave crowds;
        end if;
        call tollgate_lock_row(v_name);
        call tollgate_bury(v_name, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), true);
        call tollgate_advance(v_name, timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)));
        commit;
    end while;
end;

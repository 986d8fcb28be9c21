-- What makes tables in MySQL and MariaDB refuse stale tokens, for every language.
--
--     start transaction;
--     call tollgate_admit('orders', 42);        -- before the first read; fails with TG412 if 42 is stale
--     update orders set …;
--     commit;
--
-- An error does not end a transaction here: whoever is refused has to roll back. `tollgate_admit_shared` is for holders of a
-- shared lock. Safe to run again.

-- The highest exclusive token that was let in, for each resource. It never falls.
create table if not exists tollgate_fences (
    resource  varbinary(512) not null primary key,
    token     bigint not null
) engine = innodb;

-- What the present transaction is called: null outside of one that was begun. MariaDB tells how many were begun and ended on
-- this connection, MySQL numbers them. Ends that nobody asked for (a deadlock, a change of a table) are not counted: so
-- nothing but a reminder to those who forget rests on it.
drop procedure if exists tollgate_transaction;
create procedure tollgate_transaction(out p_id varchar(100))
sql security invoker
begin
    set p_id = null;
    if version() like '%MariaDB%' then
        set p_id = null;
        /*M!100600
        if @@in_transaction then
            select group_concat(variable_value order by variable_name separator '-') into p_id
            from information_schema.session_status
            where variable_name in ('COM_BEGIN', 'COM_COMMIT', 'COM_ROLLBACK');
        end if;
        */
    else
        select event_id into p_id from performance_schema.events_transactions_current
        where thread_id = ps_current_thread_id() and state = 'ACTIVE' and autocommit = 'NO';
    end if;
end;

-- Refuses what is no token, and who has not begun a transaction; tells what the present one is called.
drop procedure if exists tollgate_begun;
create procedure tollgate_begun(p_resource varbinary(512), p_token bigint, out p_id varchar(100))
sql security invoker
begin
    if p_resource is null or p_resource = '' then
        signal sqlstate '22023' set message_text = 'Tollgate: a resource has a name of 1 to 512 bytes';
    end if;
    if p_token is null or p_token not between 1 and 9007199254740991 then
        signal sqlstate '22003' set message_text = 'Tollgate: a fencing token is a number from 1 to 2^53 - 1';
    end if;
    call tollgate_transaction(p_id);
    if p_id is null then
        signal sqlstate 'TG428' set message_text = 'Tollgate: begin a transaction first, and admit the token in it';
    end if;
end;

-- Notes with which token the present transaction was admitted to a resource. Whoever writes is compared with the mark again.
drop procedure if exists tollgate_note;
create procedure tollgate_note(p_resource varbinary(512), p_token bigint)
sql security invoker
begin
    declare v_id varchar(100);
    call tollgate_begun(p_resource, p_token, v_id);
    if coalesce(json_unquote(json_extract(@tollgate_admitted, '$.id')), '') <> v_id then
        set @tollgate_admitted = json_object('id', v_id);
    end if;
    set @tollgate_admitted = json_set(@tollgate_admitted, concat('$.r', hex(p_resource)), p_token);
end;

-- Lets an exclusive holder in, which shuts out everybody before it. Equal passes, smaller is refused.
drop procedure if exists tollgate_admit;
create procedure tollgate_admit(p_resource varbinary(512), p_token bigint)
sql security invoker
begin
    declare v_mark bigint;
    declare v_words varchar(128);
    call tollgate_note(p_resource, p_token);
    insert into tollgate_fences values (p_resource, p_token)
    on duplicate key update token = greatest(token, p_token);
    -- Locked, so that it is the newest, whatever this transaction has seen before.
    select token into v_mark from tollgate_fences where resource = p_resource for update;
    if v_mark > p_token then
        set v_words = concat('Tollgate: stale, ', v_mark, ' was here already');
        signal sqlstate 'TG412' set message_text = v_words;
    end if;
end;

-- Lets a shared holder in if its token is not below the mark, and raises nothing. Nothing is noted, for who shares a lock with
-- others may not write.
drop procedure if exists tollgate_admit_shared;
create procedure tollgate_admit_shared(p_resource varbinary(512), p_token bigint)
sql security invoker
begin
    declare v_mark bigint;
    declare v_words varchar(128);
    declare v_id varchar(100);
    call tollgate_begun(p_resource, p_token, v_id);
    -- What is not there cannot be locked.
    if not exists (select 1 from tollgate_fences where resource = p_resource) then
        insert ignore into tollgate_fences values (p_resource, 0);
    end if;
    select token into v_mark from tollgate_fences where resource = p_resource lock in share mode;
    if v_mark > p_token then
        set v_words = concat('Tollgate: stale, ', v_mark, ' was here already');
        signal sqlstate 'TG412' set message_text = v_words;
    end if;
end;

-- Refuses who has not admitted an exclusive token for a resource, and whoever did and is stale by now. For triggers. The mark is locked
-- until the transaction ends, as by admitting: it cannot be raised before this one's writes are over.
--
-- Made last: that it is there, with this version, says that all of the above is.
drop procedure if exists tollgate_check;
create procedure tollgate_check(p_resource varbinary(512))
comment 'tollgate fence 2'
sql security invoker
begin
    declare v_mark, v_token bigint;
    declare v_id varchar(100);
    declare v_words varchar(128);
    call tollgate_transaction(v_id);
    -- By two functions: that which is both takes only a written path in MySQL.
    set v_token = json_unquote(json_extract(@tollgate_admitted, concat('$.r', hex(p_resource))));
    if v_id is null or v_token is null or json_unquote(json_extract(@tollgate_admitted, '$.id')) <> v_id then
        signal sqlstate 'TG428'
            set message_text = 'Tollgate: this table is fenced; admit an exclusive token in this transaction before writing';
    end if;
    select token into v_mark from tollgate_fences where resource = p_resource lock in share mode;
    if v_mark > v_token then
        set v_words = concat('Tollgate: stale, ', v_mark, ' was here already');
        signal sqlstate 'TG412' set message_text = v_words;
    end if;
end;

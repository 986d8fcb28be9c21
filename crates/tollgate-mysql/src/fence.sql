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
-- this connection, MySQL numbers them.
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

-- Notes that the present transaction may write to a resource.
drop procedure if exists tollgate_note;
create procedure tollgate_note(p_resource varbinary(512))
sql security invoker
begin
    declare v_id varchar(100);
    call tollgate_transaction(v_id);
    if v_id is null then
        signal sqlstate 'TG428' set message_text = 'Tollgate: begin a transaction first, and admit the token in it';
    end if;
    if @tollgate_admitted is null or substring_index(@tollgate_admitted, '/', 1) <> v_id then
        set @tollgate_admitted = concat(v_id, '/');
    end if;
    set @tollgate_admitted = concat(@tollgate_admitted, hex(p_resource), '/');
end;

-- Lets an exclusive holder in, which shuts out everybody before it. Equal passes, smaller is refused.
drop procedure if exists tollgate_admit;
create procedure tollgate_admit(p_resource varbinary(512), p_token bigint)
sql security invoker
begin
    declare v_mark bigint;
    declare v_words varchar(128);
    insert into tollgate_fences values (p_resource, p_token)
    on duplicate key update token = greatest(token, p_token);
    -- Locked, so that it is the newest, whatever this transaction has seen before.
    select token into v_mark from tollgate_fences where resource = p_resource for update;
    if v_mark > p_token then
        set v_words = concat('Tollgate: stale, ', v_mark, ' was here already');
        signal sqlstate 'TG412' set message_text = v_words;
    end if;
    call tollgate_note(p_resource);
end;

-- Lets a shared holder in if its token is not below the mark, and raises nothing.
drop procedure if exists tollgate_admit_shared;
create procedure tollgate_admit_shared(p_resource varbinary(512), p_token bigint)
sql security invoker
begin
    declare v_mark bigint;
    declare v_words varchar(128);
    select token into v_mark from tollgate_fences where resource = p_resource lock in share mode;
    if v_mark > p_token then
        set v_words = concat('Tollgate: stale, ', v_mark, ' was here already');
        signal sqlstate 'TG412' set message_text = v_words;
    end if;
    call tollgate_note(p_resource);
end;

-- Refuses who has not admitted a token for a resource in this transaction. For triggers.
drop procedure if exists tollgate_check;
create procedure tollgate_check(p_resource varbinary(512))
sql security invoker
begin
    declare v_id varchar(100);
    call tollgate_transaction(v_id);
    if v_id is null or @tollgate_admitted is null or substring_index(@tollgate_admitted, '/', 1) <> v_id
        or locate(concat('/', hex(p_resource), '/'), @tollgate_admitted) = 0
    then
        signal sqlstate 'TG428'
            set message_text = 'Tollgate: this table is fenced; admit a token in this transaction before writing';
    end if;
end;

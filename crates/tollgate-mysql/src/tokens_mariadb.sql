-- Tokens of a sequence: the names of locks that nobody uses can be forgotten, and their tokens go on.

create sequence if not exists tollgate_tokens maxvalue 9007199254740991;

-- The next token. Drawn only by whoever has locked the row of the lock.
drop procedure if exists tollgate_draw;
create procedure tollgate_draw(p_name varbinary(512), out p_token bigint)
sql security invoker
begin
    set p_token = nextval(tollgate_tokens);
end;

-- Makes all later tokens larger than this one. A sequence never goes back.
drop procedure if exists tollgate_raise_floor;
create procedure tollgate_raise_floor(p_name varbinary(512), p_floor bigint)
sql security invoker
begin
    -- It takes a written number only.
    execute immediate concat('do setval(tollgate_tokens, ', p_floor, ')');
end;

-- Removes rows of locks that nobody used for a minute. They are looked for without locks, by a plain select, and looked at again
-- with them; a hundred go at a time.
drop procedure if exists tollgate_sweep;
create procedure tollgate_sweep()
sql security invoker
begin
    declare at bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - 60000000;
    declare v_name varbinary(512);
    declare gone integer default 0;
    declare done boolean default false;
    declare idle cursor for
        select name from tollgate_locks
        where coalesce(expires, 0) < at and holders = 0 and waiters = 0 limit 10000;
    declare continue handler for not found set done = true;
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_bury_crowds();
    delete from tollgate_renewals where expires < at;
    delete from tollgate_revocations where until < at;
    open idle;
    set done = false;
    start transaction;
    each_row: loop
        fetch idle into v_name;
        if done then
            leave each_row;
        end if;
        delete from tollgate_locks
        where name = v_name and coalesce(expires, 0) < at and holders = 0 and waiters = 0
            and (owner is null or not exists (
                select 1 from tollgate_renewals r where r.owner = tollgate_locks.owner lock in share mode
            ));
        set gone = gone + 1;
        if gone mod 100 = 0 then
            commit;
            start transaction;
        end if;
    end loop;
    commit;
    close idle;
end;

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

-- Removes rows of locks that nobody used for a minute.
drop procedure if exists tollgate_sweep;
create procedure tollgate_sweep()
sql security invoker
begin
    declare at bigint default timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - 60000000;
    call tollgate_bury_crowds();
    -- Seen without locks, and looked at again with them.
    delete from tollgate_locks
    where name in (
        select name from (
            select name from tollgate_locks
            where coalesce(expires, 0) < at and holders = 0 and waiters = 0 limit 10000
        ) as idle
    ) and coalesce(expires, 0) < at and holders = 0 and waiters = 0;
end;

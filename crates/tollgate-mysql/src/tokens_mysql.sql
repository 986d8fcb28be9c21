-- Tokens that each lock counts in its own row, for databases without sequences. The rows are never deleted.

-- The next token. Drawn only by whoever has locked the row of the lock.
drop procedure if exists tollgate_draw;
create procedure tollgate_draw(p_name varbinary(512), out p_token bigint)
sql security invoker
begin
    update tollgate_locks set counter = counter + 1 where name = p_name;
    select counter into p_token from tollgate_locks where name = p_name;
end;

-- Makes all later tokens of a lock larger than this one.
drop procedure if exists tollgate_raise_floor;
create procedure tollgate_raise_floor(p_name varbinary(512), p_floor bigint)
sql security invoker
begin
    declare exit handler for sqlexception
    begin
        rollback;
        resignal;
    end;
    call tollgate_lock_row(p_name);
    update tollgate_locks set counter = greatest(counter, p_floor) where name = p_name;
    commit;
end;

-- Only what crowds left behind is removed.
drop procedure if exists tollgate_sweep;
create procedure tollgate_sweep()
sql security invoker
begin
    call tollgate_bury_crowds();
    delete from tollgate_renewals
    where expires < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - 60000000;
    delete from tollgate_revocations
    where until < timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - 60000000;
end;

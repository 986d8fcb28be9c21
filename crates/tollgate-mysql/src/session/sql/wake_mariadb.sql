-- A sequence is on the disk a moment after it was drawn from: after a crash it may be behind. So the first connection to a
-- server that has just started puts it far ahead. Safe to run again.

-- Empty after every start.
create table if not exists tollgate_awake (since bigint not null) engine = memory;

-- How far that was. Written so that it is on the disk.
create table if not exists tollgate_wakes (ahead bigint not null) engine = innodb;

drop procedure if exists tollgate_wake;
create procedure tollgate_wake()
sql security invoker
begin
    declare again bigint;
    if not exists (select 1 from tollgate_awake) then
        do get_lock('tollgate wake', 30);
        if not exists (select 1 from tollgate_awake) then
            set again = least(nextval(tollgate_tokens) + 1000000, 9007199254740990);
            execute immediate concat('do setval(tollgate_tokens, ', again, ')');
            insert into tollgate_wakes values (again);
            delete from tollgate_wakes where ahead < again;
            insert into tollgate_awake values (again);
        end if;
        do release_lock('tollgate wake');
    end if;
end;

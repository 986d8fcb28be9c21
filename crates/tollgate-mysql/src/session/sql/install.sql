-- What locks of ?style=session need in the database beside GET_LOCK itself. Safe to run again.

-- Who holds a lock or waits for it, for people who look. Written some time after the lock was taken, if it is held for that
-- long; nothing is decided by it. A row counts only while its connection has that lock, or waits for it.
create table if not exists tollgate_sessions (
    connection  bigint not null primary key,
    -- What the lock is called by GET_LOCK.
    lock_key    varbinary(64) not null,
    name        varbinary(512) not null,
    -- Those who hold it have one.
    token       bigint,
    details     blob not null
) engine = innodb;

-- Who took locks in an earlier life of this server has none now.
delete from tollgate_sessions where connection not in (select id from information_schema.processlist);

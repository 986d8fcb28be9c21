-- The next token of a lock that is held, where rows count them.
insert into tollgate_locks (name, counter) values (?, last_insert_id(1))
on duplicate key update counter = last_insert_id(counter + 1)

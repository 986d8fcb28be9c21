-- Guards the table THE_TABLE: who writes to it without having admitted a token for the resource THE_RESOURCE is refused.
-- Safe to run again.

drop trigger if exists `THE_TABLE_fenced_insert`;
create trigger `THE_TABLE_fenced_insert` before insert on `THE_TABLE`
for each row call tollgate_check(THE_RESOURCE);
drop trigger if exists `THE_TABLE_fenced_update`;
create trigger `THE_TABLE_fenced_update` before update on `THE_TABLE`
for each row call tollgate_check(THE_RESOURCE);
drop trigger if exists `THE_TABLE_fenced_delete`;
create trigger `THE_TABLE_fenced_delete` before delete on `THE_TABLE`
for each row call tollgate_check(THE_RESOURCE);

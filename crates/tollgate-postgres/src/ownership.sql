-- What stands where our tables and functions are to be, and belongs to a role that is not trusted. The owner of a table can
-- have its own functions run by every user of the table, with that user's rights: by triggers, rules, views and defaults.
--
-- $1: the schema. $2: our names in it. $3: roles that are trusted besides, with commas, or null.
--
-- Every function and operator is named with its schema: at this moment nothing else in this database can be believed. Roles are
-- compared by number: a superuser counts as a member of every role.

with schemas as (
    select n.oid, n.nspname, n.nspowner, n.nspacl
    from pg_catalog.pg_namespace as n
    where n.nspname operator(pg_catalog.=) $1::pg_catalog.name
),
databases as (
    select d.datdba
    from pg_catalog.pg_database as d
    where d.datname operator(pg_catalog.=) pg_catalog.current_database()
),
callers as (
    select r.oid, r.rolsuper, r.rolcreaterole, r.rolcreatedb
    from pg_catalog.pg_roles as r
    where r.rolname operator(pg_catalog.=) current_user
),
-- A superuser trusts superusers. Others use what the owner of the database has made for them, and if they have no rights beyond
-- the tables that they use, what the owner of the schema has.
trusted as (
    select r.oid
    from pg_catalog.pg_roles as r, callers, databases
    where r.rolsuper
        or r.oid operator(pg_catalog.=) callers.oid
        or r.rolname::pg_catalog.text operator(pg_catalog.=) any (pg_catalog.string_to_array($3::pg_catalog.text, ','))
        or (
            not callers.rolsuper
            and (
                r.oid operator(pg_catalog.=) databases.datdba
                or (
                    not callers.rolcreaterole and not callers.rolcreatedb
                    and callers.oid operator(pg_catalog.<>) databases.datdba
                    and exists (select from schemas where schemas.nspowner operator(pg_catalog.=) r.oid)
                )
            )
        )
),
things as (
    select 1 as place, 'the schema'::pg_catalog.text as kind, s.nspname::pg_catalog.text as name, s.nspowner as owner,
        false as is_odd
    from schemas as s
    union all
    select 2,
        case
            when c.relkind operator(pg_catalog.=) 'r'::pg_catalog."char" then 'the table'::pg_catalog.text
            when c.relkind operator(pg_catalog.=) 'S'::pg_catalog."char" then 'the sequence'::pg_catalog.text
            when c.relkind operator(pg_catalog.=) 'i'::pg_catalog."char" then 'the index'::pg_catalog.text
            else 'an object that is not a Tollgate table, perhaps a view:'::pg_catalog.text
        end,
        c.relname::pg_catalog.text, c.relowner,
        not (c.relkind operator(pg_catalog.=) any ('{r,S,i}'::pg_catalog."char"[]))
    from schemas as s
        join pg_catalog.pg_class as c on c.relnamespace operator(pg_catalog.=) s.oid
    where c.relname::pg_catalog.text operator(pg_catalog.=) any ($2)
    union all
    select 3, 'the function'::pg_catalog.text, p.proname::pg_catalog.text, p.proowner, false
    from schemas as s
        join pg_catalog.pg_proc as p on p.pronamespace operator(pg_catalog.=) s.oid
    where p.proname::pg_catalog.text operator(pg_catalog.=) any ($2)
    union all
    -- A trigger does what its function says, and the right to make one can be granted.
    select 4, 'the function of the trigger'::pg_catalog.text, t.tgname::pg_catalog.text, p.proowner, false
    from schemas as s
        join pg_catalog.pg_class as c on c.relnamespace operator(pg_catalog.=) s.oid
        join pg_catalog.pg_trigger as t on t.tgrelid operator(pg_catalog.=) c.oid
        join pg_catalog.pg_proc as p on p.oid operator(pg_catalog.=) t.tgfoid
    where c.relname::pg_catalog.text operator(pg_catalog.=) any ($2) and not t.tgisinternal
    union all
    -- The number 0 stands for PUBLIC.
    select 5, 'the right to create objects in the schema'::pg_catalog.text, s.nspname::pg_catalog.text, granted.grantee, false
    from schemas as s, pg_catalog.aclexplode(s.nspacl) as granted
    where granted.privilege_type operator(pg_catalog.=) 'CREATE'::pg_catalog.text
),
-- The role pg_database_owner stands for the database's owner.
owned as (
    select things.place, things.kind, things.name, things.is_odd,
        case when things.owner operator(pg_catalog.=) 6171::pg_catalog.oid then databases.datdba else things.owner end as owner
    from things, databases
)
select owned.kind, owned.name, owned.is_odd,
    case
        when owned.owner operator(pg_catalog.=) 0::pg_catalog.oid then null
        else coalesce(
            (select r.rolname::pg_catalog.text from pg_catalog.pg_roles as r where r.oid operator(pg_catalog.=) owned.owner),
            owned.owner::pg_catalog.text
        )
    end as owner,
    current_user::pg_catalog.text as caller,
    (select callers.rolsuper from callers) as is_superuser
from owned
where owned.is_odd or not exists (select from trusted where trusted.oid operator(pg_catalog.=) owned.owner)
order by owned.place using operator(pg_catalog.<), owned.name using operator(pg_catalog.<)
limit 1

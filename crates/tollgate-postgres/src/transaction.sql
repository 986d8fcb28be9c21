-- A lock that lives exactly as long as the transaction that took it.
--
-- The transaction has the lock of the lock's row while that says that nobody else is in. So whoever takes locks by leases
-- runs into it, and it ends with the transaction, however that ends. It never keeps a row's lock while it waits: what it
-- finds taken it lets go of at once, by a subtransaction that is undone, so that nobody's renewal waits for it.

-- Takes the lock and returns a token, the same one however often a transaction asks, or null if somebody else is in or waits. Waits no longer than so many milliseconds,
-- and only for those who have the row's lock: other transactions, or a request that is under way.
create or replace function tollgate.take_in_transaction(wanted text, patience integer) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp
-- Whatever is set within is as it was when the function ends.
set lock_timeout = 0
as $fn$
#variable_conflict use_column
declare
    found_lock record;
    given bigint;
begin
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'a lock within a transaction needs READ COMMITTED: this one is %, and does not see who is in now',
            upper(current_setting('transaction_isolation'))
            using errcode = 'TG409';
    end if;
    -- It may be this transaction's already, which has written so into the row: nobody else can have changed that since. What a
    -- savepoint has undone is not there any more, and neither is the row's lock.
    select token into given from tollgate.locks
    where name = wanted and owner is null and sent = txid_current_if_assigned() and expires >= now();
    if found then
        return given;
    end if;
    -- A look that disturbs nobody.
    if not tollgate.free_for_transaction(wanted) then
        return null;
    end if;
    perform set_config('lock_timeout', greatest(patience, 1)::text, true);
    begin
        loop
            select owner into found_lock from tollgate.locks where name = wanted for update;
            exit when found;
            insert into tollgate.locks (name, expires) values (wanted, clock_timestamp())
                on conflict (name) do nothing;
        end loop;
        -- A holder whose time is over is not renewed beside the row any more from here on.
        perform tollgate.alone_with(found_lock.owner);
        -- Nor one of those who are in together: whoever is being renewed in this moment is waited for.
        perform from tollgate.claims where name = wanted and token is not null for share;
        -- Another statement, so it sees what was committed before the row's lock was had.
        if not tollgate.free_for_transaction(wanted) then
            raise exception using errcode = 'TG423';
        end if;
        -- Written, not only locked: whoever waits for the row by then looks at it, and draws a token, anew. And a holder that
        -- has expired must not come back.
        given := nextval('tollgate.tokens');
        update tollgate.locks
        set owner = null, expires = clock_timestamp(), token = given, sent = txid_current()
        where name = wanted;
    exception
        when lock_not_available or sqlstate 'TG423' then
            return null;
    end;
    return given;
end
$fn$;

-- Whether nobody is in and nobody waits, as far as can be seen from here.
create or replace function tollgate.free_for_transaction(wanted text) returns boolean
language sql volatile set search_path = pg_catalog, pg_temp as $fn$
    select not exists (
            select from tollgate.locks l left join tollgate.renewals r using (owner)
            where name = wanted and owner is not null and greatest(l.expires, r.expires) > clock_timestamp()
        )
        and not exists (
            select from tollgate.claims where name = wanted and expires > clock_timestamp()
        )
$fn$;

-- What a PostgreSQL says of itself, in one row. Changes nothing, and asks for nothing that every user may not see: what is
-- not shown to this one is null.
--
-- $1: the schema of the locks. $2: what its tables start with. $3 and $4: the two without which there are no locks.

select
    current_setting('server_version') as version,
    current_setting('server_version_num')::integer as version_number,
    pg_is_in_recovery() as in_recovery,
    current_setting('transaction_read_only') as read_only,
    current_setting('synchronous_commit') as synchronous_commit,
    current_setting('synchronous_standby_names') as synchronous_standbys,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    current_setting('default_transaction_isolation') as isolation,
    current_setting('autovacuum') as autovacuum,
    current_setting('track_counts') as track_counts,
    current_setting('idle_in_transaction_session_timeout') as idle_in_transaction,
    current_setting('max_connections')::bigint as max_connections,
    (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
    -- Replicas, and those of them that a commit waits for.
    (select count(*) from pg_stat_replication) as replicas,
    (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')) as synchronous_replicas,
    -- How old the oldest transaction is that keeps rows from being cleaned up, in seconds, and whose it is.
    oldest.seconds::bigint as oldest_seconds,
    oldest.pid as oldest_process,
    oldest.state as oldest_state,
    (select count(*) from pg_prepared_xacts where prepared < clock_timestamp() - interval '10 minutes')
        as old_prepared,
    (select count(*) from pg_replication_slots where not active and (xmin is not null or catalog_xmin is not null))
        as dead_slots,
    current_user::text as user_name,
    current_database()::text as database,
    has_database_privilege(current_database(), 'create') as may_create_schema,
    to_regnamespace($1) is not null as has_schema,
    coalesce(has_schema_privilege(to_regnamespace($1), 'usage'), false) as may_use_schema,
    coalesce(has_schema_privilege(to_regnamespace($1), 'create'), false) as may_create_tables,
    tables.locks is not null as has_tables,
    coalesce(
        tables.all_usable
            and has_sequence_privilege(tables.tokens, 'usage') and has_sequence_privilege(tables.tokens, 'select')
            and has_sequence_privilege(tables.tokens, 'update'),
        false
    ) as may_use_tables,
    tables.size as table_bytes,
    tables.live as locks_held
from
    -- By the catalogue, not by name: who may not use a schema cannot even name what is in it.
    (
        select
            max(c.oid::bigint) filter (where c.relname = $2 || $3)::oid as locks,
            max(c.oid::bigint) filter (where c.relname = $2 || 'tokens')::oid as tokens,
            bool_and(
                has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
                    and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete')
            ) filter (where c.relkind = 'r') as all_usable,
            sum(pg_total_relation_size(c.oid)) filter (where c.relname in ($2 || $3, $2 || $4))::bigint as size,
            sum(greatest(c.reltuples, 0)) filter (where c.relname = $2 || $3)::bigint as live
        from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where n.nspname = $1
            and c.relname in ($2 || $3, $2 || $4, $2 || 'renewals', $2 || 'revocations', $2 || 'version', $2 || 'tokens')
    ) as tables
    left join lateral (
        select extract(epoch from clock_timestamp() - xact_start) as seconds, pid, state
        from pg_stat_activity
        where xact_start is not null and pid <> pg_backend_pid() and backend_type = 'client backend'
        order by xact_start limit 1
    ) as oldest on true

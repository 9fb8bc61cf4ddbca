-- Holds for this transaction only, so that it does not matter whose session it is. synchronous_commit: at least on, and
-- not lower than the role's own. Says what came of it, and which server this is.
SELECT
    pg_catalog.set_config('synchronous_commit',
        CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
    pg_catalog.set_config('lock_timeout', '2s', true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', '2s', true),
    -- A timeout at COMMIT would not undo it, but end its wait for a synchronous standby.
    pg_catalog.set_config('statement_timeout', '0', true),
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.current_setting('synchronous_commit') IN ('on', 'remote_apply') AS synced,
    c.system_identifier,
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) AS timeline,
    (extract(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint AS now
FROM pg_catalog.pg_control_system() c

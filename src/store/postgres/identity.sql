-- Which store this is: restored, cloned, failed over or made anew, it is another one.
SELECT m.store, m.era, c.system_identifier, pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) AS timeline,
    'hooksluice.key'::regclass::oid AS key_table
FROM hooksluice.meta m, pg_catalog.pg_control_system() c WHERE m.id = 1

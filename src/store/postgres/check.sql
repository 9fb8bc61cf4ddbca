-- What opening must know of the server, the role and the schema.
SELECT
    current_setting('server_version_num')::int AS version,
    current_setting('server_version') AS version_text,
    pg_catalog.pg_is_in_recovery() AS standby,
    current_setting('fsync')::bool AS fsync,
    current_setting('full_page_writes')::bool AS full_page_writes,
    current_user::text AS role,
    current_database()::text AS database,
    has_database_privilege(current_database(), 'CREATE') AS may_create,
    has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE') AS may_identify,
    n.oid IS NOT NULL AS present,
    coalesce(pg_has_role(n.nspowner, 'USAGE'), false) AS ours,
    pg_get_userbyid(n.nspowner)::text AS owner,
    EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'meta') AS laid_out,
    EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid) AS used
FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = 'hooksluice'

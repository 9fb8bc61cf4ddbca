SELECT pg_catalog.pg_notify($1, '')

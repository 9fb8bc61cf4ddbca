-- One replica at a time; ends with the transaction. The number is "hslcmigr".
SELECT pg_catalog.pg_advisory_xact_lock(7526466502045427570)

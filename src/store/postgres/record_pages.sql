SELECT pg_catalog.pg_relation_size('hooksluice.record') / current_setting('block_size')::bigint

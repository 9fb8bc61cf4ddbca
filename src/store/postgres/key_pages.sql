SELECT pg_catalog.pg_relation_size('hooksluice.key') / current_setting('block_size')::bigint

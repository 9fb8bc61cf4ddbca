-- Makes the commit write and sync: an answer rests on what it saw, which a synchronous standby must have as well.
SELECT pg_catalog.pg_logical_emit_message(true, 'hooksluice', '')

SELECT count(DISTINCT p.proname)
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = 'hooksluice' AND p.proname = ANY ($1::text[])

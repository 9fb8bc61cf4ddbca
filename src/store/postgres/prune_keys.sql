-- Removes keys that are too old, in a slice of the table's pages, so that no index on their age is needed. A rule key is
-- kept while a dispatch of its event is not delivered.
WITH old AS MATERIALIZED (
    SELECT k.ctid AS place FROM hooksluice.key k
    WHERE k.ctid >= ('(' || $1::bigint || ',0)')::tid AND k.ctid < ('(' || $2::bigint || ',0)')::tid
        AND CASE k.kind
            WHEN 0 THEN k.received_at < $3 AND (
                SELECT count(*) FROM (SELECT FROM hooksluice.dispatch d WHERE d.event = k.event AND d.state + 0 < 4 LIMIT 1) open) = 0
            ELSE k.received_at < $4
        END
    FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM hooksluice.key k WHERE k.ctid = ANY (ARRAY(SELECT place FROM old))
)
SELECT count(*) FROM old

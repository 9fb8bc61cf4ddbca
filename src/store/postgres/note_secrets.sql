-- In one order, so that replicas that note the same secrets do not wait for each other in a circle.
WITH noted AS (
    SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS n (source, mark, used, others)
    ORDER BY source, mark
), forgotten AS (
    DELETE FROM hooksluice.secret s WHERE s.seen_at < $6
        AND NOT EXISTS (SELECT FROM noted n WHERE n.source = s.source AND n.mark = s.mark)
)
INSERT INTO hooksluice.secret AS s (source, mark, since, last_used, others, seen_at)
SELECT source, mark, $5, used, others, $5 FROM noted
ON CONFLICT (source, mark) DO UPDATE SET
    others = excluded.others
        + CASE WHEN excluded.last_used IS NULL OR excluded.last_used < s.last_used THEN s.others ELSE 0 END,
    last_used = greatest(s.last_used, excluded.last_used),
    seen_at = greatest(s.seen_at, excluded.seen_at)

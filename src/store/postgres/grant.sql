-- Divides the units of each upstream evenly over the replicas whose shares are still valid, as far as the others have let
-- go of theirs: the sum is never above the whole. Runs behind lock_lanes.sql, with what that waited for in sight.
-- $2: the whole by our configuration. $3: what we may be using, and keep until it has ended.
WITH mine AS (
    SELECT * FROM unnest($1::int[], $2::int[], $3::int[]) AS g (upstream, whole, used)
), live AS (
    SELECT s.* FROM hooksluice.share s
    WHERE s.upstream = ANY ($1::int[]) AND s.valid_until > clock_timestamp()
), counted AS (
    SELECT m.upstream, m.whole AS own_whole, m.used,
        least(m.whole, min(s.whole) FILTER (WHERE s.replica <> $4)) AS whole,
        1 + count(*) FILTER (WHERE s.replica <> $4) AS replicas,
        count(*) FILTER (WHERE s.replica < $4) AS place,
        coalesce(sum(s.units) FILTER (WHERE s.replica <> $4), 0) AS taken,
        coalesce(max(s.units) FILTER (WHERE s.replica = $4), 0) AS held
    FROM mine m LEFT JOIN live s ON s.upstream = m.upstream
    GROUP BY m.upstream, m.whole, m.used
), fair AS (
    SELECT *, whole / replicas + CASE WHEN place < whole % replicas THEN 1 ELSE 0 END AS target FROM counted
), granted AS (
    INSERT INTO hooksluice.share AS s (upstream, replica, units, whole, valid_until)
    SELECT upstream, $4, greatest(0, least(greatest(target, least(held, used)), whole - taken)), own_whole,
        clock_timestamp() + $5 * interval '1 millisecond'
    FROM fair
    ON CONFLICT (upstream, replica) DO UPDATE
        SET units = excluded.units, whole = excluded.whole, valid_until = excluded.valid_until
    RETURNING upstream, units
)
SELECT g.upstream, g.units, f.target::int AS target, f.whole::int AS whole, f.replicas::int AS replicas
FROM granted g JOIN fair f ON f.upstream = g.upstream

-- Divides the units of each upstream evenly over the replicas whose shares are still valid, as far as the others have let
-- go of theirs: the sum is never above the whole. Runs behind lock_lanes.sql, with what that waited for in sight.
-- $2: the whole by our configuration; a row's units are parts of its own replica's whole, the answer's of the smallest.
-- $3, of $6: what we may be using, and keep until it has ended, though we start nothing with it.
WITH mine AS (
    SELECT * FROM unnest($1::int[], $2::int[], $3::int[], $6::int[]) AS g (upstream, whole, used, used_of)
), live AS (
    SELECT s.* FROM hooksluice.share s
    WHERE s.upstream = ANY ($1::int[]) AND s.valid_until > clock_timestamp()
), agreed AS (
    SELECT m.upstream, m.whole AS own_whole, m.used, m.used_of,
        least(m.whole, min(s.whole) FILTER (WHERE s.replica <> $4))::bigint AS whole
    FROM mine m LEFT JOIN live s ON s.upstream = m.upstream
    GROUP BY m.upstream, m.whole, m.used, m.used_of
), counted AS (
    -- Rounded up: a part of a unit is in use like a whole one.
    SELECT a.upstream, a.own_whole, a.whole, (a.used * a.whole + a.used_of - 1) / a.used_of AS used,
        1 + count(*) FILTER (WHERE s.replica <> $4) AS replicas,
        count(*) FILTER (WHERE s.replica < $4) AS place,
        coalesce(sum((s.units * a.whole + s.whole - 1) / s.whole) FILTER (WHERE s.replica <> $4), 0)::bigint AS taken,
        coalesce(max((s.units * a.whole + s.whole - 1) / s.whole) FILTER (WHERE s.replica = $4), 0) AS held
    FROM agreed a LEFT JOIN live s ON s.upstream = a.upstream
    GROUP BY a.upstream, a.own_whole, a.whole, a.used, a.used_of
), fair AS (
    SELECT *, whole / replicas + CASE WHEN place < whole % replicas THEN 1 ELSE 0 END AS target FROM counted
), free AS (
    SELECT *, greatest(0, least(target, whole - taken)) AS units FROM fair
), granted AS (
    INSERT INTO hooksluice.share AS s (upstream, replica, units, whole, valid_until)
    SELECT upstream, $4, (greatest(units, least(held, used)) * own_whole + whole - 1) / whole, own_whole,
        clock_timestamp() + $5 * interval '1 millisecond'
    FROM free
    ON CONFLICT (upstream, replica) DO UPDATE
        SET units = excluded.units, whole = excluded.whole, valid_until = excluded.valid_until
    RETURNING upstream
)
SELECT f.upstream, f.units::int AS units, f.whole::int AS whole, f.replicas::int AS replicas
FROM granted g JOIN free f ON f.upstream = g.upstream

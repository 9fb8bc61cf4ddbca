-- Gives dispatches up that are not delivered, for good: that of $2, or all. Whoever holds a lease on one loses its fence.
WITH there AS MATERIALIZED (
    SELECT d.upstream, d.state, d.token FROM hooksluice.dispatch d
    WHERE d.event = $1 AND d.state + 0 < 4 AND ($2::int IS NULL OR d.upstream = $2)
    ORDER BY d.upstream
    FOR UPDATE
), ended AS (
    UPDATE hooksluice.dispatch d SET state = 5, due = 0, token = NULL, lease_until = NULL
    FROM there t
    WHERE d.event = $1 AND d.upstream = t.upstream
    RETURNING d.upstream, t.state, t.token
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $3, $4, upstream, 0, 0, -count(*) FILTER (WHERE state = 0), -count(*) FILTER (WHERE state = 1),
        -count(*) FILTER (WHERE state = 2), -count(*) FILTER (WHERE state = 3), 0, count(*)
    FROM ended GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased, dead = t.dead + excluded.dead,
            held = t.held + excluded.held, discarded = t.discarded + excluded.discarded
)
SELECT upstream, token FROM ended
UNION ALL SELECT NULL, NULL FROM hooksluice.event WHERE id = $1
ORDER BY upstream NULLS LAST

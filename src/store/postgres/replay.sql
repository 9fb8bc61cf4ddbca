-- Makes dispatches pending again, whatever became of them, or makes them: those of $2, or all there are. Fresh give-up
-- clocks; the attempt number goes on. Those that are leased are left alone.
WITH found AS MATERIALIZED (
    SELECT least(octet_length(e.head) + octet_length(e.body) + 512, 2147483647)::int AS weight FROM hooksluice.event e WHERE e.id = $1
    -- Whoever forgets it waits, or has come first.
    FOR SHARE
), there AS MATERIALIZED (
    SELECT d.upstream, d.state FROM hooksluice.dispatch d
    WHERE d.event = $1 AND ($2::int[] IS NULL OR d.upstream = ANY ($2::int[]))
    ORDER BY d.upstream
    FOR UPDATE
), restarted AS (
    UPDATE hooksluice.dispatch d
    SET state = 0, due = $3, token = NULL, lease_until = NULL, attempts_on_clock = 0, replay = true, clock_started_at = $3,
        clock_stopped_before = coalesce((SELECT l.stopped_total FROM hooksluice.lane l WHERE l.upstream = d.upstream), 0)
    FROM there t
    WHERE d.event = $1 AND d.upstream = t.upstream AND d.state <> 1 AND t.state <> 1
    RETURNING d.upstream, t.state
), made AS (
    INSERT INTO hooksluice.dispatch (event, upstream, state, due, attempts, attempts_on_clock, replay, clock_started_at,
        clock_stopped_before, weight)
    SELECT $1, u, 0, $3, 0, 0, true, $3,
        coalesce((SELECT l.stopped_total FROM hooksluice.lane l WHERE l.upstream = u), 0), f.weight
    FROM unnest($2::int[]) u CROSS JOIN found f
    WHERE NOT EXISTS (SELECT FROM there t WHERE t.upstream = u)
    ON CONFLICT (event, upstream) DO NOTHING
    RETURNING upstream
), moved AS (
    SELECT upstream, 0 AS made, state FROM restarted UNION ALL SELECT upstream, 1, NULL::smallint FROM made
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $4, $5, upstream, sum(made), 0, count(*) FILTER (WHERE state IS DISTINCT FROM 0), 0, -count(*) FILTER (WHERE state = 2),
        -count(*) FILTER (WHERE state = 3), -count(*) FILTER (WHERE state = 4), -count(*) FILTER (WHERE state = 5)
    FROM moved GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET made = t.made + excluded.made, pending = t.pending + excluded.pending, dead = t.dead + excluded.dead,
            held = t.held + excluded.held, delivered = t.delivered + excluded.delivered, discarded = t.discarded + excluded.discarded
)
SELECT upstream, false AS busy FROM moved
UNION ALL SELECT t.upstream, true FROM there t WHERE t.state = 1
UNION ALL SELECT NULL, false FROM found
ORDER BY upstream NULLS LAST

-- Records how attempts ended and ends their leases, where the lease still is the one that is named: only what is leased has
-- a token. $16 and $17 are the smallest and the largest of the events, so that only their partitions are planned for. (The
-- state stands in no condition here and in its like: it would invite the planner to look for single rows in the index of
-- what is open, where all leases of an upstream lie next to each other.)
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::smallint[], $5::bigint[], $6::int[], $7::bigint[], $8::int[],
        $9::smallint[], $10::smallint[], $11::bytea[], $12::bytea[])
        AS g (event, upstream, token, state, due, number, started_at, took, outcome, status, cause, excerpt)
), settled AS (
    UPDATE hooksluice.dispatch d
    SET state = g.state, due = g.due, token = NULL, lease_until = NULL,
        attempts_on_clock = d.attempts_on_clock + 1, last_number = g.number, last_started_at = g.started_at,
        last_took = g.took, last_outcome = g.outcome, last_status = g.status, last_cause = g.cause, last_excerpt = g.excerpt
    FROM given g
    WHERE d.event = g.event AND d.upstream = g.upstream AND d.token = g.token
        AND d.event BETWEEN $16 AND $17
    RETURNING d.event, d.upstream, d.state, g.number
), marked AS (
    INSERT INTO hooksluice.death AS m (event, times)
    SELECT event, count(*) FROM settled WHERE state = 2 AND $15 GROUP BY event ORDER BY event
    ON CONFLICT (event) DO UPDATE SET times = m.times + excluded.times
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $13, $14, upstream, 0, 0, count(*) FILTER (WHERE state = 0), -count(*), count(*) FILTER (WHERE state = 2), 0,
        count(*) FILTER (WHERE state = 4), 0
    FROM settled GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased, dead = t.dead + excluded.dead,
            delivered = t.delivered + excluded.delivered
)
SELECT event, upstream, state FROM settled

-- Ends leases whose attempts were not begun; their numbers are free again.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::smallint[], $5::bigint[]) AS g (event, upstream, token, state, due)
), declined AS (
    UPDATE hooksluice.dispatch d
    SET state = g.state, due = g.due, token = NULL, lease_until = NULL, attempts = d.attempts - 1
    FROM given g
    WHERE d.event = g.event AND d.upstream = g.upstream AND d.token = g.token
    RETURNING d.event, d.upstream, d.state
), marked AS (
    INSERT INTO hooksluice.death AS m (event, times)
    SELECT event, count(*) FROM declined WHERE state = 2 AND $8 GROUP BY event ORDER BY event
    ON CONFLICT (event) DO UPDATE SET times = m.times + excluded.times
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $6, $7, upstream, 0, 0, count(*) FILTER (WHERE state = 0), -count(*), count(*) FILTER (WHERE state = 2), 0, 0, 0
    FROM declined GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased, dead = t.dead + excluded.dead
)
SELECT event, upstream FROM declined

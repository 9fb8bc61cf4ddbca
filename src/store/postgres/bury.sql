-- Leased dispatches whose event cannot be read: dead, and kept.
WITH buried AS (
    UPDATE hooksluice.dispatch d SET state = 2, token = NULL, lease_until = NULL, due = 0
    FROM unnest($1::uuid[], $2::bigint[]) AS g (event, token)
    WHERE d.event = g.event AND d.token = g.token
    RETURNING d.upstream
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $3, $4, upstream, 0, 0, 0, -count(*), count(*), 0, 0, 0 FROM buried GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE SET leased = t.leased + excluded.leased, dead = t.dead + excluded.dead
)
SELECT count(*) FROM buried

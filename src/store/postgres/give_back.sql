-- Ends leases that were not used: pending again, in their old place.
WITH given AS (
    SELECT * FROM unnest($1::uuid[], $2::int[], $3::bigint[], $4::int[]) AS g (event, upstream, token, unused)
), returned AS (
    UPDATE hooksluice.dispatch d
    SET state = 0, token = NULL, lease_until = NULL, attempts = d.attempts - g.unused
    FROM given g
    WHERE d.event = g.event AND d.upstream = g.upstream AND d.token = g.token
    RETURNING d.event, d.upstream
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $5, $6, upstream, 0, 0, count(*), -count(*), 0, 0, 0, 0 FROM returned GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased
)
SELECT upstream FROM returned

-- Leases with these tokens were never handed out: whoever wrote them did not hear what became of it. Pending again, in their
-- old place, with their attempts unused.
WITH ended AS (
    UPDATE hooksluice.dispatch d SET state = 0, token = NULL, lease_until = NULL, attempts = d.attempts - 1
    WHERE d.upstream = ANY ($1::int[]) AND d.state = 1 AND d.token = ANY ($2::bigint[])
    RETURNING d.upstream
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $3, $4, upstream, 0, 0, count(*), -count(*), 0, 0, 0, 0 FROM ended GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased
)
SELECT DISTINCT upstream FROM ended

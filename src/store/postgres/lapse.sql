-- Leases whose holder did not renew them in time: pending again, in their old place.
WITH lapsed AS MATERIALIZED (
    SELECT event, upstream FROM hooksluice.dispatch
    WHERE upstream = ANY ($1::int[]) AND state = 1 AND lease_until < clock_timestamp()
    LIMIT 500
    FOR UPDATE SKIP LOCKED
), ended AS (
    UPDATE hooksluice.dispatch d SET state = 0, token = NULL, lease_until = NULL
    FROM lapsed l
    WHERE d.event = l.event AND d.upstream = l.upstream AND d.lease_until < clock_timestamp()
    RETURNING d.upstream
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $2, $3, upstream, 0, 0, count(*), -count(*), 0, 0, 0, 0 FROM ended GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased
)
SELECT upstream, count(*) FROM ended GROUP BY upstream

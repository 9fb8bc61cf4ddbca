-- Leases due dispatches that nobody else is about to lease: the oldest first, no more than fit, but at least one. Their
-- attempt's number is written with the lease.
WITH due AS MATERIALIZED (
    SELECT d.event, d.upstream, d.due, d.weight
    FROM hooksluice.dispatch d
    WHERE d.upstream = $1 AND d.state = 0 AND d.due <= $2 AND d.event <> ALL ($3::uuid[])
    ORDER BY d.due, d.event
    LIMIT $4
    FOR UPDATE SKIP LOCKED
), ranked AS MATERIALIZED (
    SELECT event, upstream, row_number() OVER by_age AS place, sum(weight) OVER by_age - weight AS before
    FROM due WINDOW by_age AS (ORDER BY due, event)
), claimed AS (
    UPDATE hooksluice.dispatch d
    SET state = 1, token = ($5::bigint[])[r.place], lease_until = clock_timestamp() + $6 * interval '1 millisecond',
        attempts = d.attempts + 1
    FROM ranked r
    WHERE d.event = r.event AND d.upstream = r.upstream AND r.before < $7
    RETURNING d.event, r.place, d.token, d.attempts, d.attempts_on_clock + 1 AS attempts_on_clock, d.replay, d.clock_started_at, d.clock_stopped_before, d.weight
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $8, $9, $1, 0, 0, -count(*), count(*), 0, 0, 0, 0 FROM claimed HAVING count(*) > 0
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased
)
SELECT c.event, c.token, c.attempts, c.attempts_on_clock, c.replay, c.clock_started_at, c.clock_stopped_before, c.weight,
    e.source, e.key_kind, e.key, e.received_at, e.delivery_id, e.event_type, e.head, e.body
FROM claimed c LEFT JOIN hooksluice.event e ON e.id = c.event
ORDER BY c.place

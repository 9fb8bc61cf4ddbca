-- Runs behind lock_dispatch.sql, with what that waited for in sight. Leases one dispatch to who asks for it, if $9: what waits, what is dead (and comes back to life with fresh give-up clocks, due
-- at $6), what a replica that is gone had leased. A lease with this very token ($3) is from a try of which nothing was
-- heard. Nothing is leased whose answer is kept, whatever became of it since. One row, with what was found: the state before, the lease, its event, the answer that is kept.
WITH found AS MATERIALIZED (
    SELECT d.state, d.token, d.state = 1 AND d.lease_until < clock_timestamp() AS lapsed
    FROM hooksluice.dispatch d
    WHERE d.event = $1 AND d.upstream = $2
), kept AS MATERIALIZED (
    SELECT r.status, r.headers, r.body FROM hooksluice.reply r WHERE r.event = $1 AND r.upstream = $2
), leased AS (
    UPDATE hooksluice.dispatch d
    SET state = 1, token = $3, lease_until = clock_timestamp() + $4 * interval '1 millisecond',
        attempts = d.attempts + CASE WHEN f.token = $3 THEN 0 ELSE 1 END,
        attempts_on_clock = CASE f.state WHEN 2 THEN 0 ELSE d.attempts_on_clock END,
        replay = d.replay AND f.state <> 2,
        due = CASE f.state WHEN 2 THEN $6 ELSE d.due END,
        clock_started_at = CASE f.state WHEN 2 THEN $5 ELSE d.clock_started_at END,
        clock_stopped_before = CASE f.state
            WHEN 2 THEN coalesce((SELECT l.stopped_total FROM hooksluice.lane l WHERE l.upstream = d.upstream), 0)
            ELSE d.clock_stopped_before END
    FROM found f
    WHERE d.event = $1 AND d.upstream = $2 AND (f.state IN (0, 2) OR f.lapsed OR f.token = $3)
        AND $9 AND NOT EXISTS (SELECT FROM kept)
    RETURNING d.token, d.attempts, d.attempts_on_clock + 1 AS attempts_on_clock, d.replay, d.clock_started_at,
        d.clock_stopped_before, d.weight
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $7, $8, $2, 0, 0, -count(*) FILTER (WHERE f.state = 0), count(*), -count(*) FILTER (WHERE f.state = 2), 0, 0, 0
    FROM found f CROSS JOIN leased WHERE f.state <> 1 HAVING count(*) > 0
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, leased = t.leased + excluded.leased, dead = t.dead + excluded.dead
)
SELECT $1 AS event, f.state, f.lapsed, e.id IS NOT NULL AS is_here, l.token, l.attempts, l.attempts_on_clock, l.replay,
    l.clock_started_at, l.clock_stopped_before, l.weight, e.source, e.key_kind, e.key, e.received_at, e.delivery_id,
    e.event_type, e.head, e.body, r.status, r.headers, r.body AS reply_body
FROM (VALUES (1)) AS one
LEFT JOIN found f ON true
LEFT JOIN leased l ON true
LEFT JOIN hooksluice.event e ON e.id = $1 AND (f.state IS NULL OR l.token IS NOT NULL)
LEFT JOIN kept r ON true

-- Who has the keys of these duplicates, with the surviving event's dispatches brought back to life where they are dead
-- (the provider's "redeliver"): pending, due at $7, with fresh give-up clocks.
WITH asked AS (
    SELECT * FROM unnest($1::int[], $2::smallint[], $3::bytea[], $7::bigint[]) WITH ORDINALITY AS g (source, kind, key, due, place)
), survivor AS MATERIALIZED (
    SELECT a.place, a.due, k.event, k.body_mark, k.received_at
    FROM asked a JOIN hooksluice.key k ON k.source = a.source AND k.kind = a.kind AND k.key = a.key
), dead AS MATERIALIZED (
    SELECT d.event, d.upstream
    FROM hooksluice.dispatch d
    WHERE d.event = ANY (ARRAY(SELECT event FROM survivor)) AND d.state + 0 = 2
    ORDER BY d.event, d.upstream
    FOR UPDATE
), revived AS (
    UPDATE hooksluice.dispatch d
    SET state = 0, due = (SELECT max(s.due) FROM survivor s WHERE s.event = dead.event), attempts_on_clock = 0, replay = false, clock_started_at = $4,
        clock_stopped_before = coalesce((SELECT l.stopped_total FROM hooksluice.lane l WHERE l.upstream = d.upstream), 0)
    FROM dead
    WHERE d.event = dead.event AND d.upstream = dead.upstream
    RETURNING d.event, d.upstream
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $5, $6, upstream, 0, 0, count(*), 0, -count(*), 0, 0, 0 FROM revived GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pending = t.pending + excluded.pending, dead = t.dead + excluded.dead
)
SELECT s.place, s.event, s.body_mark, s.received_at,
    ARRAY(SELECT r.upstream FROM revived r WHERE r.event = s.event) AS revived
FROM survivor s

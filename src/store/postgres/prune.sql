-- Removes finished events one by one, where they do not go with a whole partition. $1: where to go on; $2, $3: what was
-- finished and what died before is old enough; $4: how many events are looked at.
WITH near AS MATERIALIZED (
    SELECT e.id FROM hooksluice.event_{part} e WHERE e.id > $1 ORDER BY e.id LIMIT $4
), old AS MATERIALIZED (
    SELECT n.id FROM near n
    WHERE (SELECT coalesce(bool_and(d.state >= 4 AND d.clock_started_at <= $2 OR d.state = 2 AND d.clock_started_at <= $3), true)
        FROM hooksluice.dispatch_{part} d WHERE d.event = n.id)
), locked AS MATERIALIZED (
    -- A replay that came first keeps its event.
    SELECT e.id FROM hooksluice.event_{part} e WHERE e.id = ANY (ARRAY(SELECT id FROM old)) FOR UPDATE SKIP LOCKED
), dispatches AS MATERIALIZED (
    SELECT d.event, d.upstream, d.state, d.clock_started_at FROM hooksluice.dispatch_{part} d
    WHERE d.event = ANY (ARRAY(SELECT id FROM locked)) ORDER BY d.event, d.upstream FOR UPDATE
), sure AS MATERIALIZED (
    SELECT l.id FROM locked l WHERE NOT EXISTS (
        SELECT FROM dispatches d
        WHERE d.event = l.id AND NOT (d.state >= 4 AND d.clock_started_at <= $2 OR d.state = 2 AND d.clock_started_at <= $3))
), attempts_gone AS (
    DELETE FROM hooksluice.attempt_{part} WHERE event IN (SELECT id FROM sure)
), deaths_gone AS (
    DELETE FROM hooksluice.death WHERE event IN (SELECT id FROM sure)
), replies_gone AS (
    DELETE FROM hooksluice.reply WHERE event IN (SELECT id FROM sure)
), dispatches_gone AS (
    DELETE FROM hooksluice.dispatch_{part} WHERE event IN (SELECT id FROM sure) RETURNING upstream, state
), events_gone AS (
    DELETE FROM hooksluice.event_{part} WHERE id IN (SELECT id FROM sure)
), counted AS (
    INSERT INTO hooksluice.tally AS t (replica, writer, upstream, made, pruned, pending, leased, dead, held, delivered, discarded)
    SELECT $5, $6, upstream, 0, count(*), 0, 0, -count(*) FILTER (WHERE state = 2), 0, -count(*) FILTER (WHERE state = 4),
        -count(*) FILTER (WHERE state = 5)
    FROM dispatches_gone GROUP BY upstream
    ON CONFLICT (replica, writer, upstream) DO UPDATE
        SET pruned = t.pruned + excluded.pruned, dead = t.dead + excluded.dead, delivered = t.delivered + excluded.delivered,
            discarded = t.discarded + excluded.discarded
)
SELECT id FROM near ORDER BY id DESC LIMIT 1

-- Events between two ids with a dispatch that is not delivered, and whether one of theirs is dead.
WITH open AS (
    SELECT event, bool_or(state = 2) AS dead FROM hooksluice.dispatch
    WHERE state < 4 AND event > $1 AND event < $2
    GROUP BY event ORDER BY event LIMIT $3
)
SELECT e.id, e.source, e.key_kind, e.key, e.body_mark, o.dead
FROM open o JOIN hooksluice.event e ON e.id = o.event ORDER BY e.id

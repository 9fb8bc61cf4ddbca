SELECT m.event, m.times, e.source, e.key_kind, e.key
FROM hooksluice.death m JOIN hooksluice.event e ON e.id = m.event
ORDER BY m.event LIMIT $1

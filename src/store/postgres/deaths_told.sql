-- One that died again since it was looked up stays.
DELETE FROM hooksluice.death m USING unnest($1::uuid[], $2::bigint[]) AS g (event, times)
WHERE m.event = g.event AND m.times = g.times

-- $2: an order to pause or to resume, which counts even where it changes nothing.
UPDATE hooksluice.lane
SET paused = coalesce($2, paused), orders = orders + CASE WHEN $2 IS NULL THEN 0 ELSE 1 END,
    stopped_total = greatest(stopped_total, $3)
WHERE upstream = $1
RETURNING upstream, paused, orders, stopped_total

-- How many events of a partition must be kept.
SELECT count(DISTINCT event) FROM hooksluice.dispatch_p{part}
WHERE state IN (0, 1, 3) OR (state = 2 AND clock_started_at > $2) OR clock_started_at > $1

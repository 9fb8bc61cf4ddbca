-- When the next pending dispatch of an upstream is due, apart from those that must wait for an attempt of ours to end.
SELECT due FROM hooksluice.dispatch WHERE upstream = $1 AND state = 0 AND event <> ALL ($2::uuid[]) ORDER BY due, event LIMIT 1

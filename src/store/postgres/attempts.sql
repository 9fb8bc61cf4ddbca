SELECT upstream, number, started_at, took, outcome, status, cause, excerpt
FROM hooksluice.attempt WHERE event = $1 ORDER BY upstream, number

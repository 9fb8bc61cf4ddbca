-- The newest events with a dead dispatch for one of these upstreams; dead ones are due at 0.
SELECT DISTINCT x.event
FROM unnest($1::int[]) u CROSS JOIN LATERAL (
    SELECT d.event FROM hooksluice.dispatch d
    WHERE d.upstream = u AND d.state = 2 AND d.due = 0 AND d.event < $2
    ORDER BY d.event DESC LIMIT $3
) x
ORDER BY x.event DESC LIMIT $3

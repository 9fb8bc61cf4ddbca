-- The oldest event that waits or is under way, by upstream: among those that are due first and, since what is retried was
-- received before what waits behind it, those that are due last. Exact up to 1,000 of them.
SELECT u, (
    SELECT min(x.event::text)::uuid FROM (
        (SELECT d.event FROM hooksluice.dispatch d WHERE d.upstream = u AND d.state = 0 ORDER BY d.due, d.event LIMIT 500)
        UNION ALL
        (SELECT d.event FROM hooksluice.dispatch d WHERE d.upstream = u AND d.state = 0 ORDER BY d.due DESC, d.event DESC LIMIT 500)
        UNION ALL
        (SELECT d.event FROM hooksluice.dispatch d WHERE d.upstream = u AND d.state = 1 ORDER BY d.due, d.event LIMIT 500)
    ) x
) AS event
FROM unnest($1::int[]) u

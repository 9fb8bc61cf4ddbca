-- Which of these attempts are recorded: a settle whose outcome was not heard asks. An attempt's number is used once.
SELECT g.event, g.upstream
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[]) AS g (event, upstream, number, started_at)
WHERE EXISTS (SELECT FROM hooksluice.dispatch d
        WHERE d.event = g.event AND d.upstream = g.upstream AND d.last_number = g.number AND d.last_started_at = g.started_at)
    OR EXISTS (SELECT FROM hooksluice.attempt a
        WHERE a.event = g.event AND a.upstream = g.upstream AND a.number = g.number AND a.started_at = g.started_at)

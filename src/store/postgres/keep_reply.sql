-- Keeps what upstreams answered, where the attempt is the one that the dispatch was delivered by.
INSERT INTO hooksluice.reply AS r (event, upstream, status, headers, body)
SELECT g.event, g.upstream, g.status, g.headers, g.body
FROM unnest($1::uuid[], $2::int[], $3::int[], $4::bigint[], $5::smallint[], $6::bytea[], $7::bytea[])
    AS g (event, upstream, number, started_at, status, headers, body)
JOIN hooksluice.dispatch d ON d.event = g.event AND d.upstream = g.upstream
WHERE d.state = 4 AND d.last_number = g.number AND d.last_started_at = g.started_at
ON CONFLICT (event, upstream) DO UPDATE SET status = excluded.status, headers = excluded.headers, body = excluded.body

-- Renews leases; those that are not ours any more are not returned.
UPDATE hooksluice.dispatch d SET lease_until = clock_timestamp() + $4 * interval '1 millisecond'
FROM unnest($1::uuid[], $2::int[], $3::bigint[]) AS g (event, upstream, token)
WHERE d.event = g.event AND d.upstream = g.upstream AND d.token = g.token
    AND d.event BETWEEN $5 AND $6
RETURNING d.token

-- Renews the leases of calls; those that are not ours any more are not returned.
UPDATE hooksluice.record r SET lease_until = clock_timestamp() + $4 * interval '1 millisecond'
FROM unnest($1::bytea[], $2::int[], $3::bigint[]) AS g (digest, route, token)
WHERE r.digest = g.digest AND r.route = g.route AND r.token = g.token AND r.state = 0
RETURNING r.token

-- Takes keys for calls that want to begin: those that are free, those that an earlier try of the same call took, and, for
-- the tokens in $8, those that are ambiguous with the same fingerprint. In the order of keys, so that two batches never wait
-- for each other in a ring. What is taken already is seen first and left alone, so that it costs no write. Returns the
-- tokens that got theirs.
INSERT INTO hooksluice.record AS r (digest, route, fingerprint, client_key, accepted_at, expires_at, token, lease_until, state)
SELECT g.digest, g.route, g.fingerprint, g.client_key, g.accepted_at, g.expires_at, g.token,
    clock_timestamp() + $9 * interval '1 millisecond', 0
FROM unnest($1::bytea[], $2::int[], $3::bytea[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bigint[])
    AS g (digest, route, fingerprint, client_key, accepted_at, expires_at, token)
WHERE NOT EXISTS (
    SELECT FROM hooksluice.record h
    WHERE h.digest = g.digest AND h.route = g.route
        AND (h.state <> 0 OR h.token <> g.token)
        AND NOT (g.token = ANY ($8::bigint[]) AND h.fingerprint = g.fingerprint
            AND (h.state = 3 OR h.state = 0 AND h.lease_until < clock_timestamp())))
ORDER BY g.digest, g.route
ON CONFLICT (digest, route) DO UPDATE
    SET client_key = excluded.client_key, accepted_at = excluded.accepted_at, expires_at = excluded.expires_at,
        token = excluded.token, lease_until = excluded.lease_until, state = 0
    WHERE r.state = 0 AND r.token = excluded.token
        OR excluded.token = ANY ($8::bigint[]) AND r.fingerprint = excluded.fingerprint
            AND (r.state = 3 OR r.state = 0 AND r.lease_until < clock_timestamp())
RETURNING r.token

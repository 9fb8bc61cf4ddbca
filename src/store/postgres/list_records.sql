SELECT digest, route, state, status, accepted_at, expires_at, client_key, state = 0 AND lease_until < clock_timestamp() AS lapsed
FROM hooksluice.record
WHERE (accepted_at, digest, route) < ($1, $2, $3)
ORDER BY accepted_at DESC, digest DESC, route DESC LIMIT $4

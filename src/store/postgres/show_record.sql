SELECT state, fingerprint, expires_at, status, headers, body, state = 0 AND lease_until < clock_timestamp() AS lapsed
FROM hooksluice.record WHERE digest = $1 AND route = $2

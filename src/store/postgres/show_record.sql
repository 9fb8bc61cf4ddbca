SELECT r.state, r.fingerprint, r.expires_at, r.status, a.headers, a.body, r.client_key, r.accepted_at,
    r.state = 0 AND r.lease_until < clock_timestamp() AS lapsed
FROM hooksluice.record r LEFT JOIN hooksluice.answer a ON a.number = r.answer
WHERE r.digest = $1 AND r.route = $2

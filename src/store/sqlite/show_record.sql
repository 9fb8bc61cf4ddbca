SELECT r.state, r.expires_at, r.fingerprint, r.status, a.headers, a.body, r.client_key, r.accepted_at
FROM record r LEFT JOIN answer a ON a.record = r.id
WHERE r.digest = ?1 AND r.route = (SELECT id FROM route WHERE name = ?2)

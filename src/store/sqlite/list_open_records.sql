SELECT id, state, status, accepted_at, expires_at, route, digest, client_key FROM record
WHERE state IN (0, 3) AND state = ?3 AND id < ?1 ORDER BY id DESC LIMIT ?2

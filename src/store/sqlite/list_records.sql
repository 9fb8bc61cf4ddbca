SELECT id, state, status, accepted_at, expires_at, route, digest, client_key FROM record WHERE id < ?1 ORDER BY id DESC LIMIT ?2

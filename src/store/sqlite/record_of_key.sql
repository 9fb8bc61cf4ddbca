SELECT id, state, expires_at, fingerprint FROM record WHERE digest = ?1 AND route = ?2

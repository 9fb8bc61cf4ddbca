INSERT INTO record (state, token, accepted_at, expires_at, route, digest, fingerprint, client_key)
VALUES (0, ?1, ?2, ?3, ?4, ?5, ?6, ?7)

SELECT id, state FROM record WHERE expires_at <= ?1 AND state <> 0 ORDER BY expires_at LIMIT ?2

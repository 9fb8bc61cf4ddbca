SELECT id, state, clock_started_at FROM dispatch WHERE id >= ?1 ORDER BY id LIMIT ?2

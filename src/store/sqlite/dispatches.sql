SELECT id, upstream, state, attempts, due, replay, last_number, last_started_at, last_took, last_outcome, last_status, last_cause, last_excerpt
FROM dispatch WHERE id >= ?1 AND id < ?2 ORDER BY id

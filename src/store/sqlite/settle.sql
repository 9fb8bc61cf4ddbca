UPDATE dispatch SET state = ?3, due = ?4, token = NULL, attempts_on_clock = attempts_on_clock + 1,
    last_number = ?5, last_started_at = ?6, last_took = ?7, last_outcome = ?8, last_status = ?9, last_cause = ?10, last_excerpt = ?11
WHERE id = ?1 AND token = ?2

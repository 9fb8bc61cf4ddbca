UPDATE dispatch SET state = 1, token = ?2, attempts = attempts + 1 WHERE id = ?1 AND state = 0
RETURNING attempts, attempts_on_clock, replay, clock_started_at, clock_stopped_before

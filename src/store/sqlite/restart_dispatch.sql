-- Revival and replay: pending, fresh give-up clocks; the attempt number goes on.
UPDATE dispatch SET state = 0, due = ?5, token = NULL, attempts_on_clock = 0, replay = ?3, clock_started_at = ?2, clock_stopped_before = ?4
WHERE id = ?1

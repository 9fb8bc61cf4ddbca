INSERT INTO dispatch (id, upstream, state, due, attempts, attempts_on_clock, token, replay, clock_started_at, clock_stopped_before)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?9)

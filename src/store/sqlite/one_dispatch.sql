-- In the columns of due.sql.
SELECT d.id, d.attempts, d.attempts_on_clock, d.replay, d.clock_started_at, d.clock_stopped_before,
    e.id, e.source, e.received_at, e.delivery_id, e.event_type, e.head, e.body
FROM dispatch AS d LEFT JOIN event AS e ON e.position = d.id >> 14
WHERE d.id = ?1

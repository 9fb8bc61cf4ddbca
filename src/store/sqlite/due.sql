-- Due dispatches with their events, in the order in which they became due.
SELECT d.id, d.attempts, d.attempts_on_clock, d.replay, d.clock_started_at, d.clock_stopped_before,
    e.id, e.source, e.received_at, e.delivery_id, e.event_type, e.head, e.body
FROM dispatch AS d LEFT JOIN event AS e ON e.position = d.id >> 14
WHERE d.upstream = ?1 AND d.state = 0 AND d.state < 4 AND d.due <= ?2
ORDER BY d.due, d.id LIMIT ?3

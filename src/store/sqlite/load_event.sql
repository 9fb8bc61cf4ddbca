SELECT id, source, received_at, delivery_id, event_type, head, body FROM event WHERE position = ?1

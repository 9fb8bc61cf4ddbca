SELECT position, id, source, received_at, delivery_id, event_type, length(body) FROM event WHERE position = ?1

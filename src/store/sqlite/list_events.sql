SELECT position, id, source, received_at, delivery_id, event_type, length(body) FROM event
WHERE position < ?1 ORDER BY position DESC LIMIT ?2

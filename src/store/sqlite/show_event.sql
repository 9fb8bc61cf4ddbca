SELECT id, source, received_at, delivery_id, event_type, head, body, key_kind, key FROM event WHERE position = ?1

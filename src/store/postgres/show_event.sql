SELECT id AS event, source, key_kind, key, received_at, delivery_id, event_type, head, body FROM hooksluice.event WHERE id = $1

SELECT id, source, received_at, delivery_id, event_type, octet_length(body)::bigint AS body_bytes
FROM hooksluice.event WHERE id = ANY ($1::uuid[]) ORDER BY id DESC

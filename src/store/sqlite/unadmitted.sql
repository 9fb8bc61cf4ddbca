SELECT id, source, upstreams, key_kind, key, content, body_mark, received_at, delivery_id, event_type, head, body
FROM event WHERE position >= ?1 ORDER BY position LIMIT ?2

INSERT INTO event (position, id, source, upstreams, key_kind, key, content, body_mark, received_at, delivery_id, event_type, head, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)

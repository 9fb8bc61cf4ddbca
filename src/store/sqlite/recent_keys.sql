SELECT id, source, key_kind, key, content, body_mark FROM event WHERE position >= ?1 AND position < ?2 ORDER BY position

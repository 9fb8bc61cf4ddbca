-- Without those whose key belongs to another replica's event.
SELECT id, source, key_kind, key, content, body_mark FROM event
WHERE position >= ?1 AND position < ?2 AND NOT EXISTS (SELECT 1 FROM elsewhere WHERE elsewhere.position = event.position)
ORDER BY position

SELECT id, source, key_kind, key, body_mark FROM event WHERE position = ?1 AND NOT EXISTS (SELECT 1 FROM elsewhere WHERE elsewhere.position = ?1)

SELECT id, source, key_kind, key FROM event WHERE position = ?1

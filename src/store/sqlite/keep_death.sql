INSERT INTO death (position, source, key_kind, key, event, times)
SELECT position, source, key_kind, key, id, 1 FROM event WHERE position = ?1
ON CONFLICT (position) DO UPDATE SET times = times + 1

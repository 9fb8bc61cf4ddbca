SELECT event, source, key_kind, key, times FROM death WHERE position >= 0 ORDER BY position LIMIT ?1

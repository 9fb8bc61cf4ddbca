DELETE FROM secret WHERE seen_at < ?1

SELECT id FROM dispatch WHERE upstream = ?1 AND state = 0 AND state < 4 AND due <= ?2 ORDER BY due, id LIMIT ?3

SELECT 1 FROM dispatch WHERE id >= ?1 AND id < ?2 AND state < 4 LIMIT 1

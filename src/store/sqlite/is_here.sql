SELECT 1 FROM event WHERE position = ?1 AND id = ?2

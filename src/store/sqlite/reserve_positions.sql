UPDATE meta SET reserved_end = ?1 WHERE id = 1

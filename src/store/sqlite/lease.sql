UPDATE dispatch SET state = 1, token = ?2, attempts = ?3 WHERE id = ?1 AND state = 0

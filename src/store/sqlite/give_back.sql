UPDATE dispatch SET state = 0, token = NULL, attempts = attempts - ?3 WHERE id = ?1 AND token = ?2 RETURNING due

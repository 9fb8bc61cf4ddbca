UPDATE dispatch SET state = ?2, token = NULL WHERE id = ?1

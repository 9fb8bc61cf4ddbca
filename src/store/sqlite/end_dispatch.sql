UPDATE dispatch SET state = ?2, due = 0, token = NULL WHERE id = ?1

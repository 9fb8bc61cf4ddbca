UPDATE record SET state = 1, status = ?2 WHERE id = ?1

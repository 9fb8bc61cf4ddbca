-- Its attempt was not begun, so its number is free again.
UPDATE dispatch SET state = ?3, due = ?4, token = NULL, attempts = attempts - 1 WHERE id = ?1 AND token = ?2

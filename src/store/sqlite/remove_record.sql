DELETE FROM record WHERE id = ?1

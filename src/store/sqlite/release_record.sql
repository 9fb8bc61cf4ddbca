DELETE FROM record WHERE digest = ?1 AND route = ?2 AND token = ?3

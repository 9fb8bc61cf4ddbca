UPDATE record SET state = ?4, status = ?5, token = NULL WHERE digest = ?1 AND route = ?2 AND token = ?3 RETURNING id

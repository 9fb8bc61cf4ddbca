SELECT state FROM dispatch WHERE id = ?1

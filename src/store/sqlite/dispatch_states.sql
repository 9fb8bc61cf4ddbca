SELECT id, state, token FROM dispatch WHERE id >= ?1 AND id < ?2

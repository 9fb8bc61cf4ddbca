DELETE FROM dispatch WHERE id >= ?1 AND id < ?2

UPDATE meta SET key_floor = ?1, next_partition = ?2 WHERE id = 1

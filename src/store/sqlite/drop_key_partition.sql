DELETE FROM key_partition WHERE partition = ?1

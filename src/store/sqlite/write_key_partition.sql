INSERT INTO key_partition (partition, newest, keys, pages, filter) VALUES (?1, ?2, ?3, ?4, ?5)

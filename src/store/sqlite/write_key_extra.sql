INSERT INTO key_extra (partition, entry) VALUES (?1, ?2)

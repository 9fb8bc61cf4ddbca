INSERT INTO key_extra (partition, entries) VALUES (?1, ?2)

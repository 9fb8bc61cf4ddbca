INSERT OR REPLACE INTO answer (record, headers, body) VALUES (?1, ?2, ?3)

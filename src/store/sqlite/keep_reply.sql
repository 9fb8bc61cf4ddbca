INSERT OR REPLACE INTO reply (dispatch, status, headers, body) VALUES (?1, ?2, ?3, ?4)

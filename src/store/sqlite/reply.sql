SELECT status, headers, body FROM reply WHERE dispatch = ?1

DELETE FROM reply WHERE dispatch >= ?1 AND dispatch < ?2

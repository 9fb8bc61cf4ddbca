DELETE FROM attempt WHERE dispatch >= ?1 AND dispatch < ?2

DELETE FROM answer WHERE record = ?1

UPDATE meta SET tally_position = ?1 WHERE id = 1

SELECT retired FROM namespace WHERE name = ?1

DELETE FROM death WHERE position = ?1 AND times = ?2

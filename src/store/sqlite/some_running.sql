SELECT t.name, r.digest FROM record r JOIN route t ON t.id = r.route
WHERE r.state IN (0, 3) AND r.state = 0 ORDER BY r.id LIMIT ?1

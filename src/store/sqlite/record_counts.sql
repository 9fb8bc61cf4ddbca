SELECT state, count(*) FROM record GROUP BY state

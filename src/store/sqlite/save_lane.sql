INSERT INTO lane (upstream, paused, stopped_total) VALUES (?1, ?2, ?3)
ON CONFLICT (upstream) DO UPDATE SET paused = ?2, stopped_total = ?3

INSERT INTO tally (upstream, made, pruned, discarded) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (upstream) DO UPDATE SET made = ?2, pruned = ?3, discarded = ?4

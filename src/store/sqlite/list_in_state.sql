-- Dead, held and leased dispatches are few, and found by their index.
SELECT id FROM dispatch WHERE upstream = ?1 AND state = ?2 AND state < 4 AND id < ?3 ORDER BY id DESC LIMIT ?4

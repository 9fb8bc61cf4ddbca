-- Dead dispatches are few, and all have due = 0, so their index has them in order.
SELECT id FROM dispatch WHERE upstream = ?1 AND state = 2 AND state < 4 AND due = 0 AND id < ?2 ORDER BY id DESC LIMIT ?3

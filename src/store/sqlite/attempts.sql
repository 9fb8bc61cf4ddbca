SELECT number, started_at, took, outcome, status, cause, excerpt FROM attempt WHERE dispatch = ?1 ORDER BY number

-- Before the newest attempt takes its place in the dispatch row.
INSERT INTO attempt (dispatch, number, started_at, took, outcome, status, cause, excerpt)
SELECT id, last_number, last_started_at, last_took, last_outcome, last_status, last_cause, last_excerpt
FROM dispatch WHERE id = ?1 AND token = ?2 AND last_number IS NOT NULL

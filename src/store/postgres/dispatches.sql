SELECT event, upstream, state, attempts, due, replay,
    last_number AS number, last_started_at AS started_at, last_took AS took, last_outcome AS outcome, last_status AS status,
    last_cause AS cause, last_excerpt AS excerpt
FROM hooksluice.dispatch WHERE event = ANY ($1::uuid[]) ORDER BY event, upstream

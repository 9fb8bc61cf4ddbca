-- The dispatches of events that an earlier try of the same batch may have stored.
SELECT event, upstream, state, token FROM hooksluice.dispatch WHERE event = ANY ($1::uuid[])

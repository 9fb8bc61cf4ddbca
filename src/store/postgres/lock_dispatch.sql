-- Whoever settles it or asks for it waits, or has come first.
SELECT FROM hooksluice.dispatch WHERE event = $1 AND upstream = $2 FOR UPDATE

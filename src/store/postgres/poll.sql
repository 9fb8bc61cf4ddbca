-- When the next pending dispatch of each upstream is due.
SELECT u, (SELECT d.due FROM hooksluice.dispatch d WHERE d.upstream = u AND d.state = 0 ORDER BY d.due, d.event LIMIT 1) AS due
FROM unnest($1::int[]) u

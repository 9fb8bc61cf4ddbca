-- Partitions whose time is over, and those that are on their way out.
SELECT id, leaving FROM hooksluice.part WHERE leaving OR ended <= $1 ORDER BY first

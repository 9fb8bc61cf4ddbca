-- Those that a person replayed go with their dispatches.
SELECT position, admitted_at, EXISTS (SELECT 1 FROM dispatch WHERE id >= position << 14 AND id < (position + 1) << 14)
FROM elsewhere WHERE position >= ?1 ORDER BY position LIMIT ?2

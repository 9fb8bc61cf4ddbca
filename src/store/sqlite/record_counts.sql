SELECT
    count(*) FILTER (WHERE state = 0),
    count(*) FILTER (WHERE state = 1),
    count(*) FILTER (WHERE state = 2),
    count(*) FILTER (WHERE state = 3)
FROM record

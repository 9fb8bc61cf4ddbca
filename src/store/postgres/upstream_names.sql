SELECT name, id FROM hooksluice.upstream WHERE id = ANY ($1::int[])

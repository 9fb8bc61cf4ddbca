SELECT name, id FROM hooksluice.upstream WHERE name = ANY ($1::text[])

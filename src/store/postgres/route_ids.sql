SELECT name, id FROM hooksluice.route WHERE name = ANY ($1::text[])

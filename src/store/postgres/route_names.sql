SELECT name, id FROM hooksluice.route WHERE id = ANY ($1::int[])

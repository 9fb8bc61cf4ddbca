SELECT name, id FROM hooksluice.source WHERE name = ANY ($1::text[])

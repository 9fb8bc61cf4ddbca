SELECT name, id FROM hooksluice.source WHERE id = ANY ($1::int[])

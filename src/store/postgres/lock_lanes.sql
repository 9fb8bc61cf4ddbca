-- In one order, so that replicas wait for each other and never in a ring.
SELECT upstream FROM hooksluice.lane WHERE upstream = ANY ($1::int[]) ORDER BY upstream FOR UPDATE

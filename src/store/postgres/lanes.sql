SELECT upstream, paused, orders, stopped_total FROM hooksluice.lane WHERE upstream = ANY ($1::int[])

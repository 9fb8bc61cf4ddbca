SELECT upstream, state, count(*) FROM dispatch WHERE state < 4 GROUP BY upstream, state

INSERT INTO hooksluice.lane (upstream) SELECT u FROM unnest($1::int[]) u ORDER BY u ON CONFLICT (upstream) DO NOTHING

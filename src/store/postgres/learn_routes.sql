INSERT INTO hooksluice.route (name) SELECT n FROM unnest($1::text[]) n ORDER BY n ON CONFLICT (name) DO NOTHING

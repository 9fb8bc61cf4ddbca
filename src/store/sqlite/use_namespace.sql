INSERT INTO namespace (name, retired) VALUES (?1, 0) ON CONFLICT (name) DO NOTHING

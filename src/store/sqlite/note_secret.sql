INSERT INTO secret (source, mark, since, last_used, others, seen_at) VALUES (?1, ?2, ?5, ?3, ?4, ?5)
ON CONFLICT (source, mark) DO UPDATE SET
    others = excluded.others
        + CASE WHEN excluded.last_used IS NULL OR excluded.last_used < last_used THEN others ELSE 0 END,
    last_used = coalesce(max(last_used, excluded.last_used), last_used, excluded.last_used),
    seen_at = max(seen_at, excluded.seen_at)

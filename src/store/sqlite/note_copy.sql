UPDATE meta SET copied_at = coalesce(?1, copied_at) WHERE id = 1

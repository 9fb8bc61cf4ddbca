SELECT entries FROM key_page WHERE id = ?1

DELETE FROM key_extra WHERE partition <= ?1

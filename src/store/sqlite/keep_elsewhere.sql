INSERT INTO elsewhere (position, of, dead, admitted_at) VALUES (?1, ?2, ?3, ?4)

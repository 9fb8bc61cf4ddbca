SELECT u.id, u.name, sum(t.made)::bigint AS made, sum(t.pruned)::bigint AS pruned, sum(t.pending)::bigint AS pending,
    sum(t.leased)::bigint AS leased, sum(t.dead)::bigint AS dead, sum(t.held)::bigint AS held, sum(t.delivered)::bigint AS delivered,
    sum(t.discarded)::bigint AS discarded
FROM hooksluice.tally t JOIN hooksluice.upstream u ON u.id = t.upstream
GROUP BY u.id, u.name

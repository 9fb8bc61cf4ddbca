//! What people look at and ask for: lists, counts, replays, discards.

use super::*;

impl Backend {
    pub(in crate::store) fn events(&self, filter: &EventFilter, before: Option<EventId>, limit: usize) -> EventPage {
        let data = self.lock();
        let before = before.map_or(i64::MAX, |before| before.position().get());
        let mut events: Vec<EventSummary> = data
            .events
            .range(..before)
            .rev()
            .map(|(_position, row)| self.summary(row))
            .filter(|event| wanted(event, filter))
            .take(limit.clamp(1, 500) + 1)
            .collect();
        let more = events.len() > limit;
        events.truncate(limit);
        let next = events.last().map(|event| event.id).filter(|_last| more);
        EventPage { events, next }
    }

    pub(in crate::store) fn event(&self, id: EventId) -> Option<EventDetail> {
        let mut data = self.lock();
        let row = data.row(id)?;
        let dispatches = self.summary(row).dispatches.into_iter();
        Some(EventDetail {
            event: (*row.event).clone(),
            key: row.key,
            elsewhere: None,
            dispatches: dispatches
                .map(|shown| {
                    let attempts = row.dispatches[&shown.upstream].finished.clone();
                    (shown, attempts)
                })
                .collect(),
        })
    }

    pub(in crate::store) fn replay(
        &self,
        event: EventId,
        upstreams: Option<Vec<UpstreamName>>,
    ) -> Result<Replayed, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        if let Some(unknown) = upstreams.iter().flatten().find(|name| self.window(name).is_none()) {
            return Err(StoreError::UnknownUpstream(unknown.clone()));
        }
        let mut data = self.lock();
        let now = self.clock.now();
        let Some(row) = data.row(event) else {
            return Ok(Replayed::NotFound);
        };
        let wanted = upstreams.unwrap_or_else(|| row.dispatches.keys().cloned().collect());
        let (mut pending, mut busy) = (Vec::new(), Vec::new());
        for upstream in wanted {
            let row = data.row(event).unwrap();
            match row.dispatches.get(&upstream).map(|dispatch| dispatch.state) {
                Some(DispatchState::Leased) => busy.push(upstream),
                Some(_) => {
                    data.restart(event, &upstream, now, now, true);
                    pending.push(upstream);
                }
                None => {
                    data.make(event.position().get(), &upstream, now, now, true);
                    pending.push(upstream);
                }
            }
        }
        drop(data);
        self.tick();
        Ok(Replayed::Pending {
            upstreams: pending,
            busy,
        })
    }

    pub(in crate::store) fn discard(
        &self,
        event: EventId,
        upstream: Option<&UpstreamName>,
    ) -> Result<Discarded, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Closing);
        }
        let mut data = self.lock();
        let Some(row) = data.row(event) else {
            return Ok(Discarded::NotFound);
        };
        let mut upstreams = Vec::new();
        for (name, dispatch) in &mut row.dispatches {
            let over = matches!(dispatch.state, DispatchState::Delivered | DispatchState::Discarded);
            if !over && upstream.is_none_or(|upstream| upstream == name) {
                dispatch.state = DispatchState::Discarded;
                dispatch.lease = None;
                upstreams.push(name.clone());
            }
        }
        Ok(Discarded::Discarded { upstreams })
    }

    pub(in crate::store) fn counts(&self) -> Counts {
        self.tick();
        let data = self.lock();
        let mut upstreams = BTreeMap::new();
        let names = data
            .tally
            .keys()
            .cloned()
            .chain(self.windows().into_iter().map(|(name, _window)| name));
        for name in &names.collect::<Vec<_>>() {
            let (made, pruned) = data.tally.get(name).copied().unwrap_or_default();
            let mut counts = UpstreamCounts {
                states: DispatchState::ALL.into_iter().map(|state| (state, 0)).collect(),
                made,
                pruned,
                oldest_pending: None,
            };
            for row in data.events.values() {
                let Some(dispatch) = row.dispatches.get(name) else {
                    continue;
                };
                let state = self.shown(name, dispatch.state);
                *counts.states.entry(state).or_default() += 1;
                if matches!(state, DispatchState::Pending | DispatchState::Leased) {
                    counts.oldest_pending.get_or_insert(row.event.received_at);
                }
            }
            upstreams.insert(name.clone(), counts);
        }
        Counts {
            upstreams,
            unadmitted_max: u64::try_from(self.settings().unadmitted).unwrap(),
            ..Counts::default()
        }
    }

    pub(in crate::store) fn undelivered_keys(
        &self,
        older_than: Duration,
        after: Option<EventId>,
        limit: usize,
    ) -> Vec<Undelivered> {
        let before = self.clock.now().before(older_than);
        let data = self.lock();
        let from = after.map_or(0, |after| after.position().get() + 1);
        let rows = data.events.range(from..).map(|(_position, row)| row);
        rows.filter(|row| row.event.received_at < before && row.is_open())
            .map(|row| Undelivered {
                event: row.event.id,
                source: row.event.source.clone(),
                key: row.key,
                body_mark: row.body_mark,
                dead: row
                    .dispatches
                    .values()
                    .any(|dispatch| dispatch.state == DispatchState::Dead),
            })
            .take(limit)
            .collect()
    }

    fn summary(&self, row: &Row) -> EventSummary {
        EventSummary {
            id: row.event.id,
            source: row.event.source.clone(),
            delivery_id: row.event.delivery_id.clone(),
            event_type: row.event.event_type.clone(),
            received_at: row.event.received_at,
            body_bytes: u64::try_from(row.event.body.len()).unwrap(),
            elsewhere: None,
            dispatches: row
                .dispatches
                .iter()
                .map(|(upstream, dispatch)| {
                    let state = self.shown(upstream, dispatch.state);
                    DispatchSummary {
                        upstream: upstream.clone(),
                        state,
                        attempts: dispatch.attempts,
                        due: (state == DispatchState::Pending).then_some(dispatch.due),
                        replay: dispatch.replay,
                        last: dispatch.finished.last().cloned(),
                    }
                })
                .collect(),
        }
    }

    fn shown(&self, upstream: &UpstreamName, state: DispatchState) -> DispatchState {
        match state {
            DispatchState::Pending if self.window(upstream).is_none() => DispatchState::Held,
            other => other,
        }
    }
}

fn wanted(event: &EventSummary, filter: &EventFilter) -> bool {
    let dispatch = |dispatch: &DispatchSummary| {
        filter.state.is_none_or(|state| state == dispatch.state)
            && filter.upstream.as_ref().is_none_or(|name| *name == dispatch.upstream)
    };
    filter.source.as_ref().is_none_or(|source| *source == event.source)
        && (filter.event_type.is_none() || filter.event_type == event.event_type)
        && (filter.delivery_id.is_none() || filter.delivery_id == event.delivery_id)
        && filter.from.is_none_or(|from| event.received_at >= from)
        && filter.to.is_none_or(|to| event.received_at < to)
        && ((filter.state.is_none() && filter.upstream.is_none()) || event.dispatches.iter().any(dispatch))
}

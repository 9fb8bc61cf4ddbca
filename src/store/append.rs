//! A verified request, taken apart and encoded, on its way to whoever writes.

use std::sync::Arc;

use http::HeaderMap;
use tokio::sync::oneshot;

use crate::headers;
use crate::id::{EventId, UpstreamName};
use crate::key::DedupeKey;
use crate::store::codec;
use crate::store::model::{AppendError, BodyMark, NewEvent, Receipt, StoredEvent};
use crate::store::window::weight_of;

/// One verified request, encoded, waiting to be durable.
#[derive(Debug)]
pub(super) struct Append {
    /// Its id is a placeholder until the backend gives it one.
    pub(super) event: Arc<StoredEvent>,
    pub(super) upstreams: Arc<[UpstreamName]>,
    pub(super) key: DedupeKey,
    pub(super) content: Option<[u8; 32]>,
    pub(super) body_mark: BodyMark,
    /// See [`codec::encode_head`].
    pub(super) head: Vec<u8>,
    /// Dice for the event's id.
    pub(super) random: u32,
    pub(super) receipt: oneshot::Sender<Result<Receipt, AppendError>>,
}

impl Append {
    /// Takes a verified request apart, on the calling task, so that whoever writes only binds values.
    pub(super) fn new(new: NewEvent, receipt: oneshot::Sender<Result<Receipt, AppendError>>) -> Self {
        let NewEvent {
            source,
            upstreams,
            request,
            key,
            content,
            body_mark,
            awaited,
        } = new;
        let proof = request.proof();
        let scope = match (proof.scope.as_deref(), request.record_scope()) {
            (None, None) => None,
            (Some(scope), None) | (None, Some(scope)) => Some(scope.to_owned()),
            (Some(scope), Some(record)) => Some(format!("{scope}/{record}")),
        };
        let secret_label = proof.label.as_deref().map(str::to_owned);
        let verified = proof.secret_index.is_some();
        let delivery_id = request.delivery_id().map(str::to_owned);
        let event_type = request.event_type().map(str::to_owned);
        let request = request.into_request();
        let mut headers: HeaderMap = request.head.headers;
        headers::strip_untrusted(&mut headers);
        let event = StoredEvent {
            id: EventId::from_bytes([0; 16]),
            source,
            scope,
            secret_label,
            delivery_id,
            event_type,
            verified,
            awaited,
            received_at: request.head.received_at,
            method: request.head.method,
            target: request.head.target,
            authority: request.head.authority,
            client: request.head.client,
            headers,
            body: request.body,
        };
        Self {
            head: codec::encode_head(&event),
            event: Arc::new(event),
            upstreams,
            key,
            content,
            body_mark,
            random: rand::random(),
            receipt,
        }
    }

    /// Memory that it stands for.
    pub(super) fn bytes(&self) -> usize {
        weight_of(self.head.len(), self.event.body.len())
    }
}

//! The same source with something else about it, and what a request shows besides its verdict: for hints, and for keys that
//! were fetched.

use std::sync::Arc;

use crate::request::RawRequest;
use crate::verify::place::Fields;
use crate::verify::record::Record;
use crate::verify::secrets::{Key, prepare};
use crate::verify::url::PublicUrl;

use super::judge::{Judged, signed_time};
use super::{SourceSecret, Tolerance, Verifier};

impl Verifier {
    /// Whether the request would be an event of this source at any time; for hints.
    pub(in crate::verify) fn holds(&self, request: &RawRequest) -> bool {
        matches!(
            self.judge(request),
            Ok((
                Judged::Event {
                    secret_index: Some(_),
                    ..
                },
                _
            ))
        )
    }

    /// The same source but for what is given, without judging age; `None` if it cannot be. For hints.
    pub(in crate::verify) fn altered(
        &self,
        record: Arc<Record>,
        secrets: Vec<SourceSecret>,
        public_url: Option<PublicUrl>,
    ) -> Option<Self> {
        let mut keys: Vec<Vec<Key>> = record.schemes.iter().map(|_| Vec::new()).collect();
        for secret in &secrets {
            let made = prepare(&record, &secret.secret).ok()?;
            keys.iter_mut().zip(made).for_each(|(list, key)| list.push(key));
        }
        Some(Self {
            record,
            secrets,
            keys,
            public_url,
            own_hosts: self.own_hosts.clone(),
            tolerance: Some(Tolerance::Off),
            params: self.params.clone(),
            max_decoded: self.max_decoded,
            takes_secrets: self.takes_secrets,
        })
    }

    /// The same source with this secret alone.
    pub(in crate::verify) fn with_secret(&self, secret: SourceSecret) -> Result<Self, String> {
        prepare(&self.record, &secret.secret).map_err(|(why, _help)| why)?;
        let made = self.altered(Arc::clone(&self.record), vec![secret], self.public_url.clone());
        let mut verifier = made.ok_or_else(|| "the key cannot be used".to_owned())?;
        verifier.tolerance = self.tolerance;
        Ok(verifier)
    }

    /// How far the time that the request's signature covers lies behind now (negative: ahead), in milliseconds.
    pub(in crate::verify) fn behind(&self, request: &RawRequest) -> Option<i64> {
        let head = &request.head;
        let scheme = self.record.schemes.get(self.scheme_index(request))?;
        let fields = Fields::of(head, &request.body, &scheme.pointers);
        let rule = scheme.time.as_ref()?;
        let lines = scheme.signature.lines(&fields).ok()?;
        let groups = scheme.signature.groups(&lines, self.wanted(scheme)).ok()?;
        let signed = signed_time(rule, &fields, groups.first()?)?.at?;
        Some(head.received_at.as_millis().saturating_sub(signed.as_millis()))
    }

    /// Where a value that is signed by itself stands twice in the request.
    pub(in crate::verify) fn given_twice(&self, request: &RawRequest) -> Option<String> {
        let head = &request.head;
        let scheme = self.record.schemes.get(self.scheme_index(request))?;
        let fields = Fields::of(head, &request.body, &[]);
        scheme.picked.repeated(&fields).map(|place| place.to_string())
    }
}

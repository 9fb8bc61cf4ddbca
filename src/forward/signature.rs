//! Which signature headers an attempt carries: those that came, or fresh ones (DESIGN section 4, "Signatures after a
//! delay").

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tracing::debug;

use crate::forward::settings::SignaturePolicy;
use crate::store::model::StoredEvent;
use crate::time::Timestamp;
use crate::verify::Verifier;
use crate::verify::sign::SignInput;

/// The headers that replace received ones in an attempt at `now`; none when the received ones go on.
///
/// What cannot be signed anew goes on as it came: `check` says so, and an app that looks at the time will refuse it.
pub fn fresh(
    policy: SignaturePolicy,
    verifier: &Verifier,
    event: &StoredEvent,
    now: Timestamp,
) -> Vec<(HeaderName, HeaderValue)> {
    let age = now.since(event.received_at);
    if !event.verified || !wants_fresh(policy, verifier.tolerance(), age) || !verifier.record().signs_fresh() {
        return Vec::new();
    }
    let signed = verifier.sign(&SignInput {
        method: &event.method,
        target: &event.target,
        authority: event.authority.as_deref(),
        headers: &event.headers,
        body: &event.body,
        now,
        secret_index: same_secret(verifier, event, now),
    });
    signed.unwrap_or_else(|error| {
        debug!(source = %event.source, event = %event.id, %error, "not signed anew");
        Vec::new()
    })
}

/// The secret that vouched for the event, by its label, while it is live; else whichever is.
fn same_secret(verifier: &Verifier, event: &StoredEvent, now: Timestamp) -> Option<usize> {
    let label = event.secret_label.as_deref()?;
    let secrets = verifier.secrets();
    secrets.iter().position(|secret| {
        secret.label.as_deref() == Some(label) && secret.not_after.is_none_or(|not_after| now < not_after)
    })
}

/// Whether an attempt `age` after its event was received should carry a fresh signature, in a scheme that takes a
/// signature for `tolerance` (`None`: for ever, as schemes without a time do).
///
/// Half of the tolerance, since the time that the provider signed lies before ours, and the app's clock may differ.
fn wants_fresh(policy: SignaturePolicy, tolerance: Option<Duration>, age: Duration) -> bool {
    match policy {
        SignaturePolicy::Original => false,
        SignaturePolicy::Fresh => true,
        SignaturePolicy::Auto => tolerance.is_some_and(|tolerance| age >= tolerance / 2),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::id::{EventId, Position, SourceName};
    use crate::request::{RawRequest, RequestHead};
    use crate::secret::Secret;
    use crate::verify::{SourceSecret, VerifierOptions, presets};

    const RECEIVED_AT: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn secret(text: &str, label: &str, not_after: Option<Timestamp>) -> SourceSecret {
        SourceSecret {
            secret: Secret::new(text),
            label: Some(label.into()),
            scope: None,
            not_after,
        }
    }

    fn stripe(secrets: Vec<SourceSecret>) -> Verifier {
        Verifier::new(presets::find("stripe").unwrap(), secrets, VerifierOptions::default()).unwrap()
    }

    /// An event as Stripe would have signed it with the secret of that label.
    fn event(verifier: &Verifier, label: &str) -> StoredEvent {
        let mut event = StoredEvent {
            id: EventId::embedded(RECEIVED_AT, Position::new(1).unwrap(), 1),
            source: SourceName::new("stripe"),
            scope: None,
            secret_label: Some(label.to_owned()),
            delivery_id: None,
            event_type: None,
            verified: true,
            received_at: RECEIVED_AT,
            method: Method::POST,
            target: "/webhooks/stripe".parse().unwrap(),
            authority: None,
            client: "203.0.113.9".parse().unwrap(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"{\"id\":\"evt_1\"}"),
        };
        let signed = verifier.sign(&SignInput {
            method: &event.method,
            target: &event.target,
            authority: None,
            headers: &event.headers,
            body: &event.body,
            now: RECEIVED_AT,
            secret_index: same_secret(verifier, &event, RECEIVED_AT),
        });
        event.headers.extend(signed.unwrap());
        event
    }

    /// What an app with that verifier finds at `now`.
    fn app_accepts(
        verifier: &Verifier,
        event: &StoredEvent,
        fresh: Vec<(HeaderName, HeaderValue)>,
        now: Timestamp,
    ) -> bool {
        let mut headers = event.headers.clone();
        for (name, value) in fresh {
            headers.insert(name, value);
        }
        let request = RawRequest {
            head: RequestHead {
                method: event.method.clone(),
                target: event.target.clone(),
                authority: None,
                headers,
                client: event.client,
                received_at: now,
            },
            body: event.body.clone(),
        };
        verifier.verify(request).is_ok()
    }

    #[test]
    fn days_later_the_apps_own_check_of_the_providers_time_passes() {
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        let event = event(&verifier, "a");
        let days_later = RECEIVED_AT.after(Duration::from_secs(3 * 86_400));
        let original = fresh(SignaturePolicy::Original, &verifier, &event, days_later);
        assert!(original.is_empty() && !app_accepts(&verifier, &event, original, days_later));
        let auto = fresh(SignaturePolicy::Auto, &verifier, &event, days_later);
        assert!(app_accepts(&verifier, &event, auto, days_later));
    }

    #[test]
    fn a_young_forward_carries_the_original_signature() {
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        let event = event(&verifier, "a");
        let soon = RECEIVED_AT.after(Duration::from_secs(100));
        assert!(fresh(SignaturePolicy::Auto, &verifier, &event, soon).is_empty());
        assert_eq!(fresh(SignaturePolicy::Fresh, &verifier, &event, soon).len(), 1);
    }

    #[test]
    fn the_secret_that_vouched_signs_again_while_it_is_live() {
        let expires = RECEIVED_AT.after(Duration::from_secs(3600));
        let verifier = stripe(vec![
            secret("whsec_new", "new", None),
            secret("whsec_old", "old", Some(expires)),
        ]);
        let event = event(&verifier, "old");
        let only = |text: &str| stripe(vec![secret(text, "only", None)]);
        for (after, signs) in [(3000, "whsec_old"), (7200, "whsec_new")] {
            let now = RECEIVED_AT.after(Duration::from_secs(after));
            let headers = fresh(SignaturePolicy::Auto, &verifier, &event, now);
            assert!(app_accepts(&only(signs), &event, headers, now), "after {after} s");
        }
    }

    #[test]
    fn what_cannot_be_signed_goes_on_as_it_came() {
        let verifier = Verifier::new(
            presets::find("linear").unwrap(),
            vec![secret("lin_wh_0123456789", "a", None)],
            VerifierOptions::default(),
        );
        // Linear's time stands in the body, which is never changed.
        let stripe_event = event(&stripe(vec![secret("whsec_1", "a", None)]), "a");
        let now = RECEIVED_AT.after(Duration::from_secs(86_400));
        assert!(fresh(SignaturePolicy::Fresh, &verifier.unwrap(), &stripe_event, now).is_empty());
        let unverified = StoredEvent {
            verified: false,
            ..stripe_event
        };
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        assert!(fresh(SignaturePolicy::Fresh, &verifier, &unverified, now).is_empty());
    }

    #[test]
    fn auto_signs_anew_from_half_of_the_tolerance_on() {
        let tolerance = Some(Duration::from_secs(300));
        for (policy, tolerance, age, fresh) in [
            (SignaturePolicy::Auto, tolerance, 0, false),
            (SignaturePolicy::Auto, tolerance, 149, false),
            (SignaturePolicy::Auto, tolerance, 150, true),
            (SignaturePolicy::Auto, tolerance, 1_000_000, true),
            (SignaturePolicy::Auto, None, 1_000_000, false),
            (SignaturePolicy::Original, tolerance, 1_000_000, false),
            (SignaturePolicy::Fresh, tolerance, 0, true),
            (SignaturePolicy::Fresh, None, 0, true),
        ] {
            let found = wants_fresh(policy, tolerance, Duration::from_secs(age));
            assert_eq!(found, fresh, "{policy:?} {tolerance:?} {age}");
        }
    }
}

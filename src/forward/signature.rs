//! Which signature headers an attempt carries: those that came, or fresh ones (DESIGN section 4, "Signatures after a
//! delay").

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tracing::debug;

use crate::forward::settings::SignaturePolicy;
use crate::store::model::StoredEvent;
use crate::time::Timestamp;
use crate::verify::Verifier;
use crate::verify::sign::{CannotSign, SignInput};

/// The headers that replace received ones in an attempt at `now`; none when the received ones go on. `verifier` is the
/// source's, while it is configured.
///
/// What cannot be signed anew goes on as it came: `check` says so, and an app that looks at the time will refuse it.
pub fn headers(
    policy: &SignaturePolicy,
    verifier: Option<&Verifier>,
    event: &StoredEvent,
    now: Timestamp,
) -> Vec<(HeaderName, HeaderValue)> {
    let signed = match (policy, verifier) {
        // It says who forwards these bytes, whatever the source is and was.
        (SignaturePolicy::StandardWebhooks(secrets), _) => secrets.sign(event, now),
        (SignaturePolicy::Original, _) | (_, None) => return Vec::new(),
        (SignaturePolicy::Auto | SignaturePolicy::Fresh, Some(verifier)) => {
            let age = now.since(event.received_at);
            let is_wanted = *policy == SignaturePolicy::Fresh || is_late(verifier.tolerance(), age);
            if !event.verified || !is_wanted || !verifier.record().signs_fresh() {
                return Vec::new();
            }
            fresh(verifier, event, now)
        }
    };
    signed.unwrap_or_else(|error| {
        debug!(source = %event.source, event = %event.id, %error, "not signed anew");
        Vec::new()
    })
}

/// Signed in the provider's own scheme.
fn fresh(
    verifier: &Verifier,
    event: &StoredEvent,
    now: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, CannotSign> {
    verifier.sign(&SignInput {
        method: &event.method,
        target: &event.target,
        authority: event.authority.as_deref(),
        headers: &event.headers,
        body: &event.body,
        now,
        secret_index: same_secret(verifier, event, now),
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
fn is_late(tolerance: Option<Duration>, age: Duration) -> bool {
    tolerance.is_some_and(|tolerance| age >= tolerance / 2)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::forward::standard_webhooks::StandardWebhooks;
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
            awaited: false,
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
        let original = headers(&SignaturePolicy::Original, Some(&verifier), &event, days_later);
        assert!(original.is_empty() && !app_accepts(&verifier, &event, original, days_later));
        let auto = headers(&SignaturePolicy::Auto, Some(&verifier), &event, days_later);
        assert!(app_accepts(&verifier, &event, auto, days_later));
    }

    #[test]
    fn a_young_forward_carries_the_original_signature() {
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        let event = event(&verifier, "a");
        let soon = RECEIVED_AT.after(Duration::from_secs(100));
        assert!(headers(&SignaturePolicy::Auto, Some(&verifier), &event, soon).is_empty());
        assert_eq!(headers(&SignaturePolicy::Fresh, Some(&verifier), &event, soon).len(), 1);
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
            let signed = headers(&SignaturePolicy::Auto, Some(&verifier), &event, now);
            assert!(app_accepts(&only(signs), &event, signed, now), "after {after} s");
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
        assert!(headers(&SignaturePolicy::Fresh, Some(&verifier.unwrap()), &stripe_event, now).is_empty());
        let unverified = StoredEvent {
            verified: false,
            ..stripe_event
        };
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        assert!(headers(&SignaturePolicy::Fresh, Some(&verifier), &unverified, now).is_empty());
    }

    #[test]
    fn auto_signs_anew_from_half_of_the_tolerance_on() {
        let tolerance = Some(Duration::from_secs(300));
        for (tolerance, age, late) in [
            (tolerance, 0, false),
            (tolerance, 149, false),
            (tolerance, 150, true),
            (tolerance, 1_000_000, true),
            (None, 1_000_000, false),
        ] {
            assert_eq!(
                is_late(tolerance, Duration::from_secs(age)),
                late,
                "{tolerance:?} {age}"
            );
        }
    }

    #[test]
    fn an_upstreams_own_signature_asks_nothing_of_the_source() {
        let verifier = stripe(vec![secret("whsec_1", "a", None)]);
        let verified = event(&verifier, "a");
        let unverified = StoredEvent {
            verified: false,
            ..verified.clone()
        };
        let secrets = StandardWebhooks::new(vec![Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
        let policy = SignaturePolicy::StandardWebhooks(secrets.unwrap());
        for (event, source) in [
            (&verified, Some(&verifier)),
            (&unverified, Some(&verifier)),
            (&verified, None),
        ] {
            let signed = headers(&policy, source, event, RECEIVED_AT);
            let names: Vec<_> = signed.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["webhook-id", "webhook-timestamp", "webhook-signature"]);
        }
        // The others sign with the source's secrets, which are gone with it.
        assert!(headers(&SignaturePolicy::Fresh, None, &verified, RECEIVED_AT).is_empty());
    }
}

//! `signature` of an upstream, with the secrets beside it, and what its sources' schemes make of it.

use crate::config::build::or;
use crate::config::defaults;
use crate::config::file::{self, File, Signature};
use crate::config::secrets::Secrets;
use crate::diagnostic::Diagnostics;
use crate::forward::settings::{SignaturePolicy, UpstreamSettings};
use crate::forward::standard_webhooks::StandardWebhooks;
use crate::ingest::source::Source;
use crate::secret::Secret;

/// `None` when it cannot be used, which is reported.
pub(super) fn build(
    written: &file::Upstream,
    path: &str,
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) -> Option<SignaturePolicy> {
    let signature = or(&written.signature, defaults::SIGNATURE);
    if signature == Signature::StandardWebhooks {
        return standard_webhooks(written, path, secrets, problems);
    }
    if let Some(unused) = &written.signing_secrets {
        problems.error(
            unused.span.clone(),
            format!("`{path}` has a signing secret that nothing would use"),
            "its forwards are signed in their providers' schemes, with the secrets of their sources",
            Some("add `signature = \"standard-webhooks\"`, or remove it".to_owned()),
        );
        return None;
    }
    Some(match signature {
        Signature::Auto => SignaturePolicy::Auto,
        Signature::Original => SignaturePolicy::Original,
        Signature::Fresh | Signature::StandardWebhooks => SignaturePolicy::Fresh,
    })
}

fn standard_webhooks(
    written: &file::Upstream,
    path: &str,
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) -> Option<SignaturePolicy> {
    let Some(entries) = &written.signing_secrets else {
        problems.error(
            written.signature.as_ref().map(|signature| signature.span.clone()),
            format!("`{path}` has no signing secret"),
            "what would the app check the signature with?",
            Some(format!(
                "add `signing_secret = {{ env = \"NAME\" }}` and give the app the same; {}",
                StandardWebhooks::HOW_TO_MAKE_ONE
            )),
        );
        return None;
    };
    let what = format!("`{path}`");
    let mut places = Vec::new();
    let mut resolved: Option<Vec<Secret>> = Some(Vec::new());
    for entry in &entries.value {
        let place = entry.from.as_ref().map_or(&entry.span, |from| &from.span);
        let found = secrets.resolve_all(entry, false, &what, problems);
        resolved = resolved.zip(found).map(|(mut all, found)| {
            places.extend(found.iter().map(|_| place.clone()));
            all.extend(found.into_iter().map(|found| found.secret));
            all
        });
    }
    // An empty list was reported where it was read.
    let resolved = resolved.filter(|all| !all.is_empty())?;
    match StandardWebhooks::new(resolved) {
        Ok(secrets) => Some(SignaturePolicy::StandardWebhooks(secrets)),
        Err(found) => {
            for problem in found {
                let place = problem.secret_index.and_then(|index| places.get(index));
                problems.error(
                    place.unwrap_or(&entries.span).clone(),
                    format!("{what} cannot sign: {}", problem.message),
                    "Standard Webhooks secrets are `whsec_` and the base64 of 24 to 64 bytes",
                    problem.help,
                );
            }
            None
        }
    }
}

/// What an upstream's `signature` cannot do for the sources and routes that lead to it.
pub(in crate::config::build) fn judge(
    file: &File,
    upstreams: &[UpstreamSettings],
    sources: &[Source],
    secrets: Secrets<'_>,
    problems: &mut Diagnostics,
) {
    for (name, written) in &file.upstreams {
        let Some(policy) = &written.signature else { continue };
        let to_it = |source: &&Source| source.upstreams.iter().any(|to| to.as_str() == name.value);
        match policy.value {
            Signature::Auto | Signature::Original => {}
            Signature::Fresh => {
                for source in sources.iter().filter(to_it) {
                    let record = source.verifier.record();
                    let Some(hindrance) = record.hindrance() else { continue };
                    let help = match record.signs_time() {
                        true => {
                            "an app that judges the signed time refuses what is forwarded late; \
                             `signature = \"standard-webhooks\"` signs what every provider sends"
                        }
                        false => "what it checks holds at any age",
                    };
                    problems.warning(
                        policy.span.clone(),
                        format!("requests of source `{}` cannot be signed anew", source.name),
                        format!("{hindrance}: the app gets what the provider signed"),
                        Some(help.to_owned()),
                    );
                }
            }
            Signature::StandardWebhooks => {
                let by_route =
                    |(_, route): &(_, file::Route)| route.upstream.as_ref().is_some_and(|to| to.value == name.value);
                if !sources.iter().any(|source| to_it(&source)) && file.routes.iter().any(by_route) {
                    problems.warning(
                        policy.span.clone(),
                        format!("nothing that upstream `{}` gets is signed", name.value),
                        "only routes lead to it: their requests are no events, and pass as they are",
                        None,
                    );
                }
                let built = upstreams.iter().find(|upstream| upstream.name.as_str() == name.value);
                let Some(SignaturePolicy::StandardWebhooks(own)) = built.map(|upstream| &upstream.signature) else {
                    continue;
                };
                let has_it = |source: &&Source| source.verifier.secrets().iter().any(|known| own.uses(&known.secret));
                // What stands for secrets that were not looked up is always the same.
                if !secrets.are_skipped()
                    && let Some(source) = sources.iter().find(has_it)
                {
                    problems.warning(
                        policy.span.clone(),
                        format!(
                            "upstream `{}` signs with a secret of source `{}`",
                            name.value, source.name
                        ),
                        "whoever signs for that provider can also sign as hooksluice",
                        Some(format!("give it one of its own; {}", StandardWebhooks::HOW_TO_MAKE_ONE)),
                    );
                }
            }
        }
    }
}

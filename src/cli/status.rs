//! `hooksluice status`: sources, upstreams and their backlog, and what needs a person.

use std::process::ExitCode;
use std::time::Duration;

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;
use crate::admin::dto::{RouteStatus, SourceStatus, Status, UpstreamStatus};

/// Older than this, a backlog is worth a look even though nothing is dead.
const OLD_BACKLOG: Duration = Duration::from_secs(300);

/// The command's arguments.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Asks the running server and prints what it says.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    block_on(async {
        let client = AdminClient::new(&args.admin)?;
        let status: Status = client.get("/api/v1/status").await?;
        if args.json {
            output::print_json(&status)?;
        } else {
            output::print(&shown(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn shown(status: &Status) -> String {
    let mut out = format!(
        "hooksluice {}, up {}, {}\n",
        output::printable(&status.version),
        output::age(Duration::from_secs(status.uptime_seconds)),
        match &status.not_ready {
            None => "ready".to_owned(),
            Some(why) => format!("NOT READY: {}", output::printable(why)),
        }
    );
    out.push_str(&format!(
        "configuration: loaded {}\n",
        output::printable(&status.configuration.loaded_at)
    ));
    out.push_str(&format!(
        "store: {} used{}, {} waiting for admission\n",
        output::size(status.store.bytes),
        status
            .store
            .free_bytes
            .map(|free| format!(", {} free", output::size(free)))
            .unwrap_or_default(),
        status.store.unadmitted
    ));
    if let Some(redis) = &status.redis {
        out.push_str(&format!(
            "redis: {}, {} to be told\n",
            match (redis.up, redis.breaker_open) {
                (false, _) => "DOWN",
                (true, true) => "up, too slow to be asked",
                (true, false) => "up",
            },
            redis.waiting_tells
        ));
    }
    if let Some(calls) = &status.idempotency {
        out.push_str(&format!(
            "idempotent calls: {} running, {} done, {} done without a kept answer, {} ambiguous\n",
            calls.running, calls.done, calls.unstored, calls.ambiguous
        ));
    }
    out.push('\n');
    out.push_str(&sources(&status.sources));
    out.push('\n');
    if !status.routes.is_empty() {
        out.push_str(&routes(&status.routes));
        out.push('\n');
    }
    out.push_str(&upstreams(&status.upstreams));
    let advice = advice(status);
    if !advice.is_empty() {
        out.push_str("\nneeds a person:\n");
        for line in advice {
            out.push_str(&format!("  {line}\n"));
        }
    }
    out
}

fn sources(sources: &[SourceStatus]) -> String {
    let mut table = output::table(&[
        "SOURCE",
        "ACCEPTED",
        "DUPLICATES",
        "REJECTED",
        "FAILED",
        "SECRET LAST USED",
    ]);
    for source in sources {
        let secrets: Vec<String> = source
            .secrets
            .iter()
            .map(|secret| {
                let used = secret.last_used_at.as_deref().unwrap_or("never");
                format!("{}: {}", output::printable(&secret.label), output::printable(used))
            })
            .collect();
        table.add_row([
            output::printable(&source.name),
            source.accepted.to_string(),
            source.duplicates.to_string(),
            source.rejected.to_string(),
            source.failed.to_string(),
            secrets.join(", "),
        ]);
    }
    output::lines(&table)
}

fn routes(routes: &[RouteStatus]) -> String {
    let mut table = output::table(&[
        "ROUTE", "PATH", "UPSTREAM", "ANSWERED", "5XX", "FAILED", "REFUSED", "WAITING", "TUNNELS",
    ]);
    for route in routes {
        table.add_row([
            output::printable(&route.name),
            output::printable(&route.path),
            output::printable(&route.upstream),
            route.answered.to_string(),
            route.upstream_errors.to_string(),
            route.failed.to_string(),
            route.refused.to_string(),
            route.waiting.to_string(),
            route.tunnels.to_string(),
        ]);
    }
    output::lines(&table)
}

fn upstreams(upstreams: &[UpstreamStatus]) -> String {
    let mut table = output::table(&[
        "UPSTREAM",
        "PENDING",
        "LEASED",
        "DELIVERED",
        "DEAD",
        "HELD",
        "OLDEST",
        "STATE",
    ]);
    for upstream in upstreams {
        let state = match (upstream.paused, upstream.breaker_open, upstream.held_for_seconds) {
            (true, _, _) => "paused".to_owned(),
            (false, true, _) => "breaker open".to_owned(),
            (false, false, Some(left)) => {
                let left = output::age(Duration::from_secs(left));
                format!("held {left}: the upstream asked for it")
            }
            (false, false, None) => "going".to_owned(),
        };
        table.add_row([
            output::printable(&upstream.name),
            upstream.pending.to_string(),
            upstream.leased.to_string(),
            upstream.delivered.to_string(),
            upstream.dead.to_string(),
            upstream.held.to_string(),
            upstream
                .oldest_pending_seconds
                .map_or_else(|| "-".to_owned(), |s| output::age(Duration::from_secs(s))),
            state,
        ]);
    }
    output::lines(&table)
}

/// What a person should look at or do, the most urgent first.
fn advice(status: &Status) -> Vec<String> {
    let mut out = Vec::new();
    if !status.store.writable {
        let problem = status.store.problem.as_deref().unwrap_or("no reason known");
        out.push(format!(
            "the store takes no events (senders get 503 and will retry): {}",
            output::printable(problem)
        ));
    }
    if let Some(refused) = &status.configuration.refused {
        // The file may be good and only be more than a reload can do: `check` would find nothing.
        out.push(format!(
            "the configuration was refused at {}, and the one before goes on: {}. Every mistake, or what else to do: \
             hooksluice reload",
            output::printable(&refused.at),
            output::printable(&refused.why)
        ));
    }
    if status.redis.as_ref().is_some_and(|redis| !redis.up) {
        out.push("Redis is down: nothing is lost; what it means is in the README, \"Several replicas\"".to_owned());
    }
    if let Some(calls) = status.idempotency.as_ref().filter(|calls| calls.ambiguous > 0) {
        let oldest = Duration::from_secs(calls.oldest_ambiguous_seconds.unwrap_or(0));
        out.push(format!(
            "{} with an Idempotency-Key of which nobody knows whether they took effect, the oldest {} ago. Look: \
             hooksluice idempotency list --state ambiguous. Then, one by one: hooksluice idempotency resolve RECORD \
             --release (it had no effect), or --status 201 --body '{{…}}' (it had, with the answer for its repetitions)",
            output::count(calls.ambiguous, "call", "calls"),
            output::age(oldest)
        ));
    }
    for upstream in &status.upstreams {
        let name = output::printable(&upstream.name);
        if upstream.dead > 0 {
            out.push(format!(
                "{name}: {} dead. Look: hooksluice events list --state dead --upstream {name}. Once it works again: \
                 hooksluice events replay --state dead --upstream {name}",
                upstream.dead
            ));
        }
        if upstream.held > 0 {
            out.push(format!(
                "{name}: {} held, because it is not in the configuration or their content came under another id. \
                 Send: hooksluice events replay --state held --upstream {name} --to UPSTREAM",
                upstream.held
            ));
        }
        let old = upstream.oldest_pending_seconds.map(Duration::from_secs);
        if upstream.paused {
            out.push(format!(
                "{name}: paused, {} wait. Go on: hooksluice upstreams resume {name}",
                upstream.pending + upstream.leased
            ));
        } else if let Some(old) = old.filter(|old| *old >= OLD_BACKLOG) {
            let progress = match &upstream.last_progress_at {
                Some(at) => format!("last attempt ended {}", output::printable(at)),
                None => "no attempt has ended since the start".to_owned(),
            };
            out.push(format!(
                "{name}: the oldest of {} has waited {}; {progress}. Is it up and fast enough?",
                upstream.pending + upstream.leased,
                output::age(old)
            ));
        }
    }
    for source in &status.sources {
        let name = output::printable(&source.name);
        let mut reasons: Vec<&(String, u64)> = source.rejections.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if source.rejected > 0 && source.accepted == 0 && source.duplicates == 0 {
            let reason = reasons.first().map_or("wrong method", |(reason, _)| reason);
            out.push(format!(
                "{name}: every request so far was refused ({} times), mostly {}",
                source.rejected,
                output::printable(reason)
            ));
        }
        // The cause is shown, so it is worth a person's while.
        let explained = source
            .last_refusals
            .iter()
            .find_map(|refusal| Some((refusal, refusal.hint.as_ref()?)));
        if let Some((refusal, hint)) = explained {
            out.push(format!(
                "{name}: refused {} as {}: {}",
                output::printable(&refusal.client),
                output::printable(&refusal.reason),
                output::printable(hint)
            ));
        }
        out.extend(super::sources::advice(source));
        out.extend(sender_advice(source));
        if source.conflicts.saturating_mul(100) > source.duplicates {
            out.push(format!(
                "{name}: {} of {} duplicates had other bytes than their event: is its dedupe rule too coarse?",
                source.conflicts, source.duplicates
            ));
        }
    }
    out
}

/// A sender that is about to give up, or has.
fn sender_advice(source: &SourceStatus) -> Option<String> {
    let sender = source.sender.as_ref()?;
    let name = output::printable(&source.name);
    let rule = output::printable(&sender.gives_up_after);
    let rule = match sender.confidence.as_str() {
        "documented" => format!("stops sending after {rule}"),
        _ => format!("may stop sending after {rule} (not confirmed)"),
    };
    match (sender.used_percent, sender.possibly_used_percent) {
        (100.., _) => Some(format!(
            "{name}: its sender {rule}, and that is reached. Mend what fails, then enable the endpoint again at the provider"
        )),
        (used @ 50.., _) => Some(format!(
            "{name}: its sender {rule}, and {used} % of that is used. hooksluice_failures_total and the log say what fails"
        )),
        (_, possibly @ 50..) => Some(format!(
            "{name}: its sender {rule}. If the requests that were refused or failed unread are the sender's, {possibly} % of that is \
             used: is the secret right? The log says why each was refused"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_is_about_to_give_up_needs_a_person() {
        let source = |confidence: &str, used_percent, possibly_used_percent| SourceStatus {
            name: "shop".into(),
            sender: Some(crate::admin::dto::SenderStatus {
                gives_up_after: "8 failures in a row".into(),
                confidence: confidence.into(),
                used_percent,
                possibly_used_percent,
            }),
            ..SourceStatus::default()
        };
        let said = |confidence, used, possibly| sender_advice(&source(confidence, used, possibly)).unwrap_or_default();
        assert_eq!(said("documented", 49, 49), "");
        assert!(said("documented", 50, 50).contains("stops sending after 8 failures in a row, and 50 % of that"));
        assert!(said("documented", 100, 100).contains("is reached"));
        assert!(said("documented", 0, 50).contains("If the requests that were refused"));
        assert!(said("hint", 50, 50).contains("may stop sending after 8 failures in a row (not confirmed)"));
    }

    fn status() -> Status {
        Status {
            version: "0.1.0".into(),
            ready: true,
            store: crate::admin::dto::StoreStatus {
                writable: true,
                ..Default::default()
            },
            redis: Some(crate::admin::dto::RedisStatus {
                up: true,
                ..Default::default()
            }),
            sources: vec![SourceStatus {
                name: "stripe".into(),
                accepted: 10,
                ..Default::default()
            }],
            upstreams: vec![UpstreamStatus {
                name: "app".into(),
                delivered: 10,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    #[test]
    fn redis_is_shown_and_needs_a_person_only_when_it_is_down() {
        let mut status = status();
        assert!(shown(&status).contains("redis: up, 0 to be told"));
        assert!(advice(&status).is_empty());
        status.redis = Some(crate::admin::dto::RedisStatus::default());
        assert!(shown(&status).contains("redis: DOWN"));
        assert!(advice(&status)[0].contains("Redis is down"));
        status.redis = None;
        assert!(!shown(&status).contains("redis"));
    }

    #[test]
    fn routes_are_shown_where_there_are_some() {
        let mut status = status();
        assert!(!shown(&status).contains("ROUTE"));
        status.routes = vec![RouteStatus {
            name: "api".into(),
            path: "/api/{*rest}".into(),
            upstream: "app".into(),
            answered: 12,
            failed: 3,
            ..Default::default()
        }];
        let text = shown(&status);
        let line = text.lines().find(|line| line.starts_with("api")).unwrap();
        for part in ["/api/{*rest}", "app", "12", "3"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn a_refused_configuration_needs_a_person_until_it_is_mended() {
        let mut status = status();
        status.configuration.loaded_at = "2026-11-30T03:00:00Z".into();
        assert!(shown(&status).contains("configuration: loaded 2026-11-30T03:00:00Z\n"));
        status.configuration.refused = Some(crate::admin::dto::RefusedStatus {
            at: "2026-11-30T04:00:00Z".into(),
            why: "unknown key `pathh`".into(),
        });
        let advice = advice(&status);
        assert!(
            advice[0].contains("unknown key `pathh`") && advice[0].contains("hooksluice reload"),
            "{advice:?}"
        );
    }

    #[test]
    fn a_healthy_server_needs_nobody() {
        assert_eq!(advice(&status()), Vec::<String>::new());
        assert!(!shown(&status()).contains("needs a person"));
    }

    #[test]
    fn dead_dispatches_come_with_the_command_that_replays_them() {
        let mut status = status();
        status.upstreams[0].dead = 2;
        let shown = shown(&status);
        assert!(
            shown.contains("hooksluice events replay --state dead --upstream app"),
            "{shown}"
        );
    }

    #[test]
    fn ambiguous_calls_come_with_the_commands_that_resolve_them() {
        let mut status = status();
        status.idempotency = Some(crate::admin::dto::IdempotencyStatus::default());
        assert!(advice(&status).is_empty());
        status.idempotency = Some(crate::admin::dto::IdempotencyStatus {
            ambiguous: 2,
            oldest_ambiguous_seconds: Some(60),
            ..Default::default()
        });
        let shown = shown(&status);
        for command in [
            "hooksluice idempotency list --state ambiguous",
            "hooksluice idempotency resolve RECORD",
        ] {
            assert!(shown.contains(command), "{shown}");
        }
    }

    #[test]
    fn a_lane_that_the_upstream_asked_to_hold_says_for_how_long() {
        let mut status = status();
        assert!(!shown(&status).contains("asked for it"));
        status.upstreams[0].held_for_seconds = Some(12);
        let shown = shown(&status);
        assert!(shown.contains("held 12s: the upstream asked for it"), "{shown}");
    }

    #[test]
    fn a_paused_upstream_is_shown_with_the_command_that_resumes_it() {
        let mut status = status();
        status.upstreams[0].paused = true;
        status.upstreams[0].pending = 3;
        let shown = shown(&status);
        assert!(
            shown.contains("app: paused, 3 wait. Go on: hooksluice upstreams resume app"),
            "{shown}"
        );
    }

    #[test]
    fn a_lane_without_progress_is_named() {
        let mut status = status();
        status.upstreams[0].pending = 7;
        status.upstreams[0].oldest_pending_seconds = Some(3_600);
        let advice = advice(&status);
        assert!(advice[0].contains("waited 1h 0m"), "{advice:?}");
    }

    #[test]
    fn a_source_that_refuses_everything_is_named_with_its_reason() {
        let mut status = status();
        status.sources[0] = SourceStatus {
            name: "stripe".into(),
            rejected: 4,
            rejections: vec![("stale".into(), 1), ("wrong_signature".into(), 3)],
            last_refusals: vec![
                crate::admin::dto::RefusalStatus::default(),
                crate::admin::dto::RefusalStatus {
                    client: "203.0.113.9".into(),
                    reason: "wrong_signature".into(),
                    hint: Some("the signature holds with hex".into()),
                    ..Default::default()
                },
            ],
            ..Default::default()
        };
        let advice = advice(&status);
        assert!(advice[0].contains("wrong_signature"), "{advice:?}");
        assert_eq!(
            advice[1],
            "stripe: refused 203.0.113.9 as wrong_signature: the signature holds with hex"
        );
    }
}

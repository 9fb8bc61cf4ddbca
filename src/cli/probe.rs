//! `hooksluice check --probe`: tries what the configuration names, all at once, and says what a person must do.
//!
//! It changes nothing: no table, no key, no file is made, no lock taken, no request sent. So it may be run beside the
//! running server.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use tokio_util::task::TaskTracker;

use super::client::{AdminArgs, AdminClient, block_on};
use super::output;
use crate::config::Config;
use crate::dedupe::redis::probe as redis;
use crate::finding::{Finding, Verdict};
use crate::forward::settings::UpstreamSettings;
use crate::net::connections::Connections;
use crate::net::probe::{Listening, listening};
use crate::store::probe as store;
use crate::time::Clock;

/// How long each of them may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at everything, and answers in the order of the configuration.
pub fn look(config: Config) -> anyhow::Result<Vec<Finding>> {
    block_on(async {
        let clock = Clock::system();
        let tasks = TaskTracker::new();
        let mut looks = Vec::new();
        let (listen, admin) = (config.fixed.listen, config.fixed.admin.listen);
        looks.push(("listen".to_owned(), tasks.spawn(addresses(listen, admin))));
        let (place, watch) = (config.store().place, clock.clone());
        looks.push((
            "store".to_owned(),
            tasks.spawn(async move { store::probe(&place, &watch).await }),
        ));
        if let Some(settings) = config.redis() {
            let look = async move { redis::probe(&settings).await };
            looks.push(("dedupe.redis.url".to_owned(), tasks.spawn(look)));
        }
        for settings in config.live.upstreams {
            let key = format!("upstreams.{}.url", settings.name);
            looks.push((key.clone(), tasks.spawn(upstream(key, settings, clock.clone()))));
        }
        // They have begun together, so the last one ends with the first one's patience.
        let deadline = tokio::time::sleep(PATIENCE);
        let mut deadline = std::pin::pin!(deadline);
        let mut found = Vec::new();
        for (key, look) in looks {
            tokio::select! {
                biased;
                looked = look => match looked {
                    Ok(findings) => found.extend(findings),
                    Err(ended) => found.push(Finding::fail(key, ended.to_string(), "report this: it is a mistake of hooksluice")),
                },
                () = &mut deadline => found.push(Finding::fail(
                    key,
                    format!("no answer within {} s", PATIENCE.as_secs()),
                    "see that it runs, and that no firewall drops what this machine sends there",
                )),
            }
        }
        Ok(found)
    })
}

/// Whether a server could listen, or is the one that does.
async fn addresses(listen: SocketAddr, admin: SocketAddr) -> Vec<Finding> {
    let ours = running(admin).await;
    [("listen", listen), ("admin.listen", admin)]
        .into_iter()
        .map(|(key, address)| address_found(key, address, listening(address), ours))
        .collect()
}

fn address_found(key: &str, address: SocketAddr, found: Listening, ours: bool) -> Finding {
    match found {
        Listening::Free => Finding::ok(key, format!("{address} is free")),
        Listening::Taken if ours => Finding::ok(key, format!("{address} is taken, and a hooksluice is running")),
        Listening::Taken => Finding::fail(
            key,
            format!("{address} is taken by another program"),
            "stop that one, or listen elsewhere; `ss -ltnp` shows who it is",
        ),
        Listening::Refused(error) => Finding::fail(
            key,
            format!("{address} cannot be had: {error}"),
            match error.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    "ports below 1024 need a right: AmbientCapabilities=CAP_NET_BIND_SERVICE in the service, or a higher port"
                }
                _ => "name an address of this machine, or 0.0.0.0 for all of them",
            },
        ),
    }
}

/// Whether a hooksluice answers at the admin address.
async fn running(admin: SocketAddr) -> bool {
    let ip = match admin.ip() {
        ip if ip.is_unspecified() && ip.is_ipv4() => std::net::Ipv4Addr::LOCALHOST.into(),
        ip if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let Ok(uri) = format!("http://{}", SocketAddr::new(ip, admin.port())).parse() else {
        return false;
    };
    let args = AdminArgs {
        admin: uri,
        token_env: None,
    };
    let Ok(client) = AdminClient::new(&args) else {
        return false;
    };
    let asked = client.raw(Method::GET, "/healthz", Bytes::new());
    // Well inside the patience for the address itself.
    let answer = tokio::time::timeout(PATIENCE / 2, asked).await;
    matches!(answer, Ok(Ok((StatusCode::OK, body))) if body.as_ref() == b"ok\n")
}

/// A connection as an attempt would have it, and nothing over it.
async fn upstream(key: String, settings: UpstreamSettings, clock: Clock) -> Vec<Finding> {
    let connections = Connections::<Full<Bytes>>::new(&settings.remote, clock, TaskTracker::new());
    vec![match connections.open().await {
        Ok(_connection) => Finding::ok(key, format!("{} takes connections", settings.remote.origin)),
        Err(error) => Finding::fail(
            key,
            format!("{}: {}", settings.remote.origin, error.describe()),
            "see that the app runs and listens there; until it does, its events wait in the store",
        ),
    }]
}

/// A finding for programs.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    key: &'a str,
    verdict: &'a str,
    message: &'a str,
    help: Option<&'a str>,
}

/// All of them, for programs.
pub fn lines(found: &[Finding]) -> Vec<Line<'_>> {
    let lines = found.iter().map(|found| Line {
        key: &found.key,
        verdict: found.verdict.as_str(),
        message: &found.said,
        help: found.help.as_deref(),
    });
    lines.collect()
}

/// One line each for people, with what to do below it.
pub fn text(found: &[Finding]) -> String {
    let wide = found.iter().map(|found| found.key.len()).max().unwrap_or(0);
    let mut text = String::new();
    for found in found {
        let said = output::printable(&found.said);
        text.push_str(&format!("{:<4}  {:<wide$}  {said}\n", found.verdict, found.key));
        if let Some(help) = &found.help {
            text.push_str(&format!(
                "{:<4}  {:<wide$}  help: {}\n",
                "",
                "",
                output::printable(help)
            ));
        }
    }
    text
}

/// Whether something will not work.
pub fn fails(found: &[Finding]) -> bool {
    found.iter().any(|found| found.verdict == Verdict::Fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_address_is_fine_only_where_we_are_the_one_who_runs() {
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let verdict = |ours| address_found("listen", address, Listening::Taken, ours).verdict;
        assert_eq!(verdict(true), Verdict::Ok);
        assert_eq!(verdict(false), Verdict::Fail);
    }

    #[test]
    fn a_finding_is_one_line_and_its_help_another() {
        let found = [Finding::ok("a", "fine"), Finding::fail("b.c", "gone\n", "look")];
        assert_eq!(
            text(&found),
            "ok    a    fine\nfail  b.c  gone\\u{a}\n           help: look\n"
        );
        assert!(fails(&found));
    }
}

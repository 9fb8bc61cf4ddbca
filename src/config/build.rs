//! From what is written to what runs: defaults, bounds, references and everything that two places say about each
//! other. What comes out cannot be wrong any more, so nothing behind it checks again.

mod egress;
mod idempotency;
mod route;
mod source;
mod store;
mod tls;
mod upstream;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ipnet::IpNet;

use self::upstream::signing;
use crate::admin::AdminSettings;
use crate::config::defaults::{self, Quantity, Setting};
use crate::config::file::{self, File};
use crate::config::secrets::Secrets;
use crate::config::{Config, Fixed, Live};
use crate::diagnostic::Diagnostics;
use crate::id::UpstreamName;
use crate::ingest::source::{Limits, Source};
use crate::reader::At;
use crate::routes::idempotency::scope::Scope;
use crate::routes::settings::RouteSettings;
use crate::verify::url::PublicUrl;

/// Builds what runs from `file`; `None` when `problems` has an error, from here or from before.
pub(super) fn build(file: &File, secrets: Secrets<'_>, problems: &mut Diagnostics) -> Option<Config> {
    let listen = or(&file.listen, defaults::LISTEN);
    let limits = limits(&file.limits, problems);
    let admin = admin(file, listen, secrets, problems);
    let store = store::build(file, &limits, secrets, problems);
    let ground = upstream::Ground {
        own: [listen, admin.listen],
        egress: Arc::new(egress::build(&file.egress, problems)),
        roots: upstream::SystemRoots::new(secrets),
        secrets,
    };
    let upstreams: Vec<_> = file
        .upstreams
        .iter()
        .filter_map(|(name, upstream)| upstream::build(name, upstream, &ground, problems))
        .collect();
    check_public_url(file, problems);
    let tls = tls::build(file, secrets, problems);
    let sources = source::build_all(
        file,
        &limits,
        secrets,
        &tls::own_hosts(file, tls.as_ref()),
        &ground,
        problems,
    );
    let routes = route::build_all(file, &limits, &upstreams, &sources, problems);
    require_something(file, problems);
    unused_upstreams(file, problems);
    signing::judge(file, &upstreams, &sources, secrets, problems);
    let window = store::raised_window(file, &sources, store.window, problems);
    let redis = store::redis(file, &store, secrets, problems);
    let by_source = sources.iter().any(|source| source.clients.is_some());
    let by_route = |route: &RouteSettings| {
        let keys = route.idempotency.as_ref();
        keys.is_some_and(|keys| keys.scope == Scope::Certificate)
    };
    tls::warn_about_unused_authorities(file, by_source || routes.iter().any(by_route), problems);
    let live = Live {
        tls,
        shutdown_delay: within(
            &file.server.shutdown_delay,
            &defaults::SHUTDOWN_DELAY,
            "server.shutdown_delay",
            problems,
        ),
        shutdown_grace: within(
            &file.server.shutdown_grace,
            &defaults::SHUTDOWN_GRACE,
            "server.shutdown_grace",
            problems,
        ),
        trusted_proxies: trusted_proxies(file, problems),
        health_path: health_path(file, &sources, problems),
        upstreams,
        sources,
        routes,
        window,
        watch: or(&file.server.watch, defaults::WATCH),
        log: file
            .log
            .level
            .as_ref()
            .map(|level| level.value.clone())
            .unwrap_or_default(),
    };
    let fixed = Fixed {
        listen,
        speaks_tls: file.tls.is_some(),
        limits,
        admin,
        store,
        redis,
    };
    (!problems.has_errors()).then_some(Config { fixed, live })
}

fn limits(written: &file::Limits, problems: &mut Diagnostics) -> Limits {
    let head = within(&written.head, &defaults::HEAD, "limits.head", problems);
    let limits = Limits {
        connections: count(&written.connections, defaults::CONNECTIONS),
        head: usize::try_from(head).unwrap_or(usize::MAX),
        head_timeout: within(
            &written.head_timeout,
            &defaults::HEAD_TIMEOUT,
            "limits.head_timeout",
            problems,
        ),
        body: within(&written.body, &defaults::BODY, "limits.body", problems),
        body_timeout: within(
            &written.body_timeout,
            &defaults::BODY_TIMEOUT,
            "limits.body_timeout",
            problems,
        ),
        idle_timeout: within(
            &written.idle_timeout,
            &defaults::IDLE_TIMEOUT,
            "limits.idle_timeout",
            problems,
        ),
        in_flight: within(&written.in_flight, &defaults::IN_FLIGHT, "limits.in_flight", problems),
        replay_cache: within(
            &written.replay_cache,
            &defaults::REPLAY_CACHE,
            "limits.replay_cache",
            problems,
        ),
        unadmitted: count(&written.unadmitted, defaults::UNADMITTED),
    };
    if limits.body > limits.in_flight {
        problems.error(
            span(&written.body).or(span(&written.in_flight)),
            "`limits.body` is larger than `limits.in_flight`",
            format!(
                "{} can never be held within {}",
                limits.body.show(),
                limits.in_flight.show()
            ),
            Some("lower the one or raise the other".to_owned()),
        );
    }
    limits
}

fn admin(file: &File, listen: SocketAddr, secrets: Secrets<'_>, problems: &mut Diagnostics) -> AdminSettings {
    let own = or(&file.admin.listen, defaults::ADMIN_LISTEN);
    let token = file
        .admin
        .token
        .as_ref()
        .and_then(|entry| secrets.resolve(entry, "`admin.token`", problems));
    if file.admin.token.is_none() && !own.ip().to_canonical().is_loopback() {
        problems.error(
            span(&file.admin.listen),
            "`admin.listen` is reachable from outside without a token",
            "not a loopback address",
            Some("add `token = { env = \"HOOKSLUICE_ADMIN_TOKEN\" }` to [admin], or listen on 127.0.0.1".to_owned()),
        );
    }
    if let (Some(token), Some(entry)) = (&token, &file.admin.token) {
        if token.expose().len() < defaults::ADMIN_TOKEN_MIN {
            problems.error(
                entry.span.clone(),
                "`admin.token` is too short",
                format!("shorter than {} bytes can be guessed", defaults::ADMIN_TOKEN_MIN),
                Some("make one: openssl rand -hex 32".to_owned()),
            );
        } else if !token.expose().iter().all(u8::is_ascii_graphic) {
            problems.error(
                entry.span.clone(),
                "`admin.token` cannot be sent",
                "a bearer token is printable ASCII without blanks",
                Some("make one: openssl rand -hex 32".to_owned()),
            );
        }
    }
    let same_port = own.port() == listen.port() && own.port() != 0;
    if same_port && (own.ip() == listen.ip() || own.ip().is_unspecified() || listen.ip().is_unspecified()) {
        problems.error(
            span(&file.admin.listen).or(span(&file.listen)),
            "`admin.listen` and `listen` are the same port",
            "the admin API is never served on the public port",
            Some("give it a port of its own".to_owned()),
        );
    }
    AdminSettings {
        listen: own,
        token,
        hosts: hosts(file, problems),
    }
}

fn hosts(file: &File, problems: &mut Diagnostics) -> Vec<String> {
    let written = file.admin.hosts.iter().flat_map(|list| &list.value);
    let mut hosts = Vec::new();
    for host in written {
        let name = host.value.to_ascii_lowercase();
        let plain = !name.is_empty()
            && name.len() <= 253
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        if !plain {
            problems.error(
                host.span.clone(),
                "bad value in `admin.hosts`",
                "expected a host name without scheme, port or `*`",
                None,
            );
        } else if hosts.contains(&name) {
            problems.error(
                host.span.clone(),
                "bad value in `admin.hosts`",
                "given twice",
                Some("remove one".to_owned()),
            );
        } else {
            hosts.push(name);
        }
    }
    hosts
}

/// The one for all sources; a source's own may also replace path and query.
fn check_public_url(file: &File, problems: &mut Diagnostics) {
    let Some(written) = &file.public_url else { return };
    let label = match PublicUrl::parse(&written.value) {
        Ok(url) if url.is_origin() => return,
        Ok(_) => "the URL of all sources has no path and no query: the received ones are added".to_owned(),
        Err(label) => label,
    };
    problems.error(
        written.span.clone(),
        "bad value for `public_url`",
        label,
        Some("a source whose path is rewritten in front has its own `public_url`".to_owned()),
    );
}

fn trusted_proxies(file: &File, problems: &mut Diagnostics) -> Vec<IpNet> {
    let written = file.server.trusted_proxies.iter().flat_map(|list| &list.value);
    written
        .map(|network| {
            if network.value.prefix_len() == 0 {
                problems.warning(
                    network.span.clone(),
                    "`server.trusted_proxies` trusts everybody",
                    "any client can then claim any address, and pass every `allow` list",
                    Some("name the networks that your proxies are in".to_owned()),
                );
            }
            network.value
        })
        .collect()
}

fn health_path(file: &File, sources: &[Source], problems: &mut Diagnostics) -> Option<String> {
    let written = file.server.health_path.as_ref()?;
    let path = source::plain_path(written, "server.health_path", problems)?;
    if let Some(source) = sources.iter().find(|source| source.path == path) {
        problems.error(
            written.span.clone(),
            "`server.health_path` is the path of a source",
            format!("source `{}` has it", source.name),
            Some("choose another, such as \"/healthz\"".to_owned()),
        );
    }
    Some(path)
}

fn require_something(file: &File, problems: &mut Diagnostics) {
    if file.sources.is_empty() && file.routes.is_empty() {
        problems.error(
            None,
            "no source is configured",
            "nothing would be received",
            Some("add a table [sources.NAME] with `path`, `provider`, `secret` and `upstreams`".to_owned()),
        );
    } else if file.sources.is_empty() && file.routes.iter().all(|(_, route)| route.idempotency.is_none()) {
        problems.warning(
            None,
            "no source is configured",
            "requests only pass through: nothing is verified or stored",
            Some("add a table [sources.NAME] with `path`, `provider`, `secret` and `upstreams`".to_owned()),
        );
    }
    if file.upstreams.is_empty() {
        problems.error(
            None,
            "no upstream is configured",
            "nothing would be forwarded",
            Some("add a table [upstreams.app] with `url = \"http://127.0.0.1:3000\"`".to_owned()),
        );
    }
}

fn unused_upstreams(file: &File, problems: &mut Diagnostics) {
    let used: BTreeSet<&str> = file
        .sources
        .iter()
        .flat_map(|(_, source)| source.upstreams.iter().flat_map(|list| &list.value))
        .chain(file.routes.iter().filter_map(|(_, route)| route.upstream.as_ref()))
        .map(|name| name.value.as_str())
        .collect();
    let empty = file.sources.is_empty() && file.routes.is_empty();
    for (name, _) in &file.upstreams {
        if !used.contains(name.value.as_str()) && !empty {
            problems.warning(
                name.span.clone(),
                format!("upstream `{}` is not used", name.value),
                "neither a source nor a route names it; only a replay can reach it",
                None,
            );
        }
    }
}

fn upstream_names(file: &File) -> BTreeSet<UpstreamName> {
    file.upstreams
        .iter()
        .map(|(name, _)| UpstreamName::new(name.value.as_str()))
        .collect()
}

/// The written value within its bounds; the default when there is none, or, so as to go on, when it is outside.
fn within<T: Quantity>(written: &Option<At<T>>, setting: &Setting<T>, key: &str, problems: &mut Diagnostics) -> T {
    let Some(At { value, span }) = written else {
        return setting.default;
    };
    if *value >= setting.min && *value <= setting.max {
        return *value;
    }
    problems.error(
        span.clone(),
        format!("bad value for `{key}`"),
        format!("must be from {} to {}", setting.min.show(), setting.max.show()),
        None,
    );
    setting.default
}

fn or<T: Copy>(written: &Option<At<T>>, default: T) -> T {
    written.as_ref().map_or(default, |at| at.value)
}

/// The file layer lets only positive numbers through.
fn count(written: &Option<At<i64>>, default: i64) -> usize {
    usize::try_from(or(written, default)).unwrap_or(usize::MAX)
}

fn span<T>(written: &Option<At<T>>) -> Option<Range<usize>> {
    written.as_ref().map(|at| at.span.clone())
}

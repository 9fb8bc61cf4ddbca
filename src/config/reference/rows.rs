//! One line of meaning for each key, with the default and the bounds that the build uses.

mod providers;

use std::net::SocketAddr;
use std::time::Duration;

use crate::config::defaults::{self, Quantity, Setting};

/// What is said about one table.
#[derive(Debug)]
pub(super) struct Table {
    /// As in the reference: with `NAME` for what the user names.
    pub(super) name: &'static str,
    /// What it is for.
    pub(super) about: &'static str,
    /// Whether a running server takes another value only when it is started again.
    pub(super) restart: bool,
    pub(super) rows: &'static [Row],
}

/// What is said about one key.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: &'static str,
    pub(super) usual: Usual,
    /// One line, without a full stop.
    pub(super) meaning: &'static str,
}

const fn row(key: &'static str, usual: Usual, meaning: &'static str) -> Row {
    Row { key, usual, meaning }
}

/// What a key is when it is not written.
#[derive(Clone, Copy, Debug)]
pub(super) enum Usual {
    /// Nothing, or the table is wrong without it.
    Unset,
    /// Something that depends on others, in words.
    Words(&'static str),
    /// As [`Usual::Words`], within the bounds of this size.
    Within(&'static str, &'static Setting<u64>),
    /// This value, as TOML writes it.
    Is(&'static str),
    Number(i64),
    Address(SocketAddr),
    Text(&'static str),
    Time(&'static Setting<Duration>),
    Bytes(&'static Setting<u64>),
}

impl Usual {
    /// As TOML writes it, where it is a value.
    pub(super) fn toml(self) -> Option<String> {
        match self {
            Self::Unset | Self::Words(_) | Self::Within(..) => None,
            Self::Is(toml) => Some(toml.to_owned()),
            Self::Number(number) => Some(number.to_string()),
            Self::Address(address) => Some(format!("\"{address}\"")),
            Self::Text(text) => Some(format!("\"{text}\"")),
            Self::Time(setting) => Some(format!("\"{}\"", setting.default.show())),
            Self::Bytes(setting) => Some(format!("\"{}\"", setting.default.show())),
        }
    }

    /// For people.
    pub(super) fn default(self) -> String {
        match self {
            Self::Unset => "–".to_owned(),
            Self::Words(words) | Self::Within(words, _) => words.to_owned(),
            Self::Is(_) | Self::Number(_) | Self::Address(_) | Self::Text(_) | Self::Time(_) | Self::Bytes(_) => {
                format!("`{}`", self.toml().unwrap_or_default())
            }
        }
    }

    /// The smallest and the largest value that is taken, where the reader does not say it already.
    pub(super) fn bounds(self) -> Option<(String, String)> {
        match self {
            Self::Time(setting) => Some((setting.min.show(), setting.max.show())),
            Self::Bytes(setting) | Self::Within(_, setting) => Some((setting.min.show(), setting.max.show())),
            Self::Unset | Self::Words(_) | Self::Is(_) | Self::Number(_) | Self::Address(_) | Self::Text(_) => None,
        }
    }
}

/// What is said about the table of this name.
pub(super) fn table(name: &str) -> Option<&'static Table> {
    all().find(|table| table.name == name)
}

/// Everything that is said.
pub(super) fn all() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().chain(providers::TABLES)
}

use Usual::{Address, Bytes, Is, Number, Text, Time, Unset, Within, Words};

const TABLES: &[Table] = &[
    Table {
        name: "",
        about: "",
        restart: false,
        rows: &[
            row(
                "listen",
                Address(defaults::LISTEN),
                "where requests come in; another one needs a restart",
            ),
            row(
                "public_url",
                Unset,
                "scheme and host as providers were given them; needed by schemes that sign the URL (Twilio, Square), unless `[tls]` tells",
            ),
        ],
    },
    Table {
        name: "tls",
        about: "TLS on `listen`, which then speaks nothing else. Without the table requests come in as plain HTTP; whether it is there \
                is decided at the start. Files that change are taken up by a running server.",
        restart: false,
        rows: &[row(
            "client_ca",
            Unset,
            "PEM file of the CAs whose certificates clients are asked for; a bad one fails the handshake",
        )],
    },
    Table {
        name: "tls.certificates",
        about: "What clients are shown, chosen by the name that they ask for; the first also for any other name.",
        restart: false,
        rows: &[
            row("cert", Unset, "PEM file with the certificate and then its chain"),
            row("key", Unset, "PEM file with its private key, not encrypted"),
        ],
    },
    Table {
        name: "server",
        about: "The public listener as a whole.",
        restart: false,
        rows: &[
            row(
                "trusted_proxies",
                Is("[]"),
                "whose `X-Forwarded-*` is believed; from everybody else such headers are dropped",
            ),
            row(
                "shutdown_delay",
                Time(&defaults::SHUTDOWN_DELAY),
                "from the signal to the end of accepting; `/readyz` is 503 meanwhile",
            ),
            row(
                "shutdown_grace",
                Time(&defaults::SHUTDOWN_GRACE),
                "for requests and attempts that run when accepting has ended",
            ),
            row(
                "health_path",
                Unset,
                "a path of the public port that answers 200, for load balancers that see nothing else",
            ),
            row(
                "watch",
                Is("true"),
                "look at this file and at what it refers to about once a second, and load what has changed; without it: SIGHUP or \
                 `hooksluice reload`",
            ),
        ],
    },
    Table {
        name: "log",
        about: "What is logged on standard error: text on a terminal, otherwise one JSON object a line.",
        restart: false,
        rows: &[row(
            "level",
            Words("info"),
            "a word, or parts such as `\"warn,hooksluice=debug\"`; `HOOKSLUICE_LOG` wins over it",
        )],
    },
    Table {
        name: "limits",
        about: "What all requests together, and each of them, may take.",
        restart: true,
        rows: &[
            row("connections", Number(defaults::CONNECTIONS), "open inbound connections"),
            row("head", Bytes(&defaults::HEAD), "request line and headers; over it 431"),
            row(
                "head_timeout",
                Time(&defaults::HEAD_TIMEOUT),
                "for a head; over it the connection is closed",
            ),
            row(
                "body",
                Bytes(&defaults::BODY),
                "of one request; over it 413. A provider's record may raise it, a source's `max_body` sets it",
            ),
            row(
                "body_timeout",
                Time(&defaults::BODY_TIMEOUT),
                "for a body; over it 408. Also how long an answer may go unread",
            ),
            row(
                "idle_timeout",
                Time(&defaults::IDLE_TIMEOUT),
                "of a connection between requests; keep it above that of the proxy in front",
            ),
            row(
                "in_flight",
                Bytes(&defaults::IN_FLIGHT),
                "body bytes in memory over all requests; over it 503",
            ),
            row(
                "replay_cache",
                Bytes(&defaults::REPLAY_CACHE),
                "answers of idempotent calls in memory; the store has all of them",
            ),
            row(
                "unadmitted",
                Number(defaults::UNADMITTED),
                "stored events whose admission waits; at it accepting slows down. Embedded store only",
            ),
        ],
    },
    Table {
        name: "admin",
        about: "The admin API, on a listener of its own.",
        restart: true,
        rows: &[
            row(
                "listen",
                Address(defaults::ADMIN_LISTEN),
                "anything but loopback needs a token",
            ),
            row(
                "token",
                Unset,
                "the bearer token that requests must carry; 16 bytes or more",
            ),
            row("hosts", Is("[]"), "more names that `Host` may carry"),
        ],
    },
    Table {
        name: "store",
        about: "Where events are kept, and for how long.",
        restart: true,
        rows: &[
            row(
                "retention",
                Time(&defaults::RETENTION),
                "of delivered events with their bodies",
            ),
            row(
                "dead_retention",
                Time(&defaults::DEAD_RETENTION),
                "of dead dispatches and their events",
            ),
            row(
                "max_bytes",
                Bytes(&defaults::MAX_BYTES),
                "of the store's files; over it accepting stops, forwarding goes on",
            ),
            row(
                "min_free",
                Bytes(&defaults::MIN_FREE),
                "on the store's disk; below it accepting stops, forwarding goes on. Embedded store only",
            ),
        ],
    },
    Table {
        name: "store.sqlite",
        about: "The embedded store; used when neither this table nor the next is there. One process opens it.",
        restart: true,
        rows: &[row("path", Text(defaults::STORE_PATH), "a directory on a local disk")],
    },
    Table {
        name: "store.postgres",
        about: "One store for several replicas, in place of `[store.sqlite]`.",
        restart: true,
        rows: &[row(
            "url",
            Unset,
            "PostgreSQL 15 or later: `postgres://USER:PASSWORD@HOST:PORT/DATABASE` with libpq's parameters",
        )],
    },
    Table {
        name: "dedupe",
        about: "For how long a delivery is known.",
        restart: true,
        rows: &[
            row(
                "window",
                Time(&defaults::WINDOW),
                "raised to the longest time for which a configured provider retries",
            ),
            row(
                "digest_window",
                Time(&defaults::DIGEST_WINDOW),
                "for requests without an id, which are known by their content",
            ),
        ],
    },
    Table {
        name: "dedupe.redis",
        about: "Optional. With a shared store it saves the database work; with a store for each replica it decides who \
                forwards.",
        restart: true,
        rows: &[
            row(
                "url",
                Unset,
                "Redis 7.0 or later: `redis://`, `rediss://`, `unix://`, `redis+sentinel://HOST,HOST/SERVICE`, \
                 `redis+cluster://HOST,HOST`",
            ),
            row(
                "namespace",
                Unset,
                "required with the embedded store: the same at each replica, another for each deployment, a new one after a restore",
            ),
            row(
                "on_down",
                Text("store"),
                "without Redis for longer than `admit_timeout`: go on alone, or admit nothing. Embedded store only",
            ),
            row(
                "timeout",
                Time(&defaults::REDIS_TIMEOUT),
                "for a look, before the answer; over it the store decides",
            ),
            row(
                "admit_timeout",
                Time(&defaults::REDIS_ADMIT_TIMEOUT),
                "for admission, before `on_down`. Embedded store only",
            ),
        ],
    },
    Table {
        name: "egress",
        about: "Where upstreams may be, judged by the addresses that a name leads to.",
        restart: false,
        rows: &[
            row(
                "allow",
                Words("all but link-local, metadata, multicast and unspecified addresses"),
                "only these; of the others a network that lies within them",
            ),
            row("deny", Unset, "never these"),
        ],
    },
    Table {
        name: "upstreams.NAME",
        about: "An app that events and routes go to.",
        restart: false,
        rows: &[
            row("url", Unset, "its origin: `http` or `https`, host and port"),
            row(
                "protocol",
                Text("http/1.1"),
                "what it speaks; `h2` is HTTP/2 over TLS, by ALPN, `h2c` without it, by prior knowledge",
            ),
            row("concurrency", Number(defaults::CONCURRENCY), "attempts at once"),
            row("rate", Unset, "attempts per time; no limit unless set"),
            row(
                "burst",
                Words("`rate`'s own for a second"),
                "attempts that may start at once under `rate`",
            ),
            row("timeout", Time(&defaults::TIMEOUT), "for one attempt"),
            row(
                "signature",
                Text("auto"),
                "`auto` signs anew what is forwarded late, `original` never, `fresh` always; `standard-webhooks` signs everything \
                 in that scheme, with secrets of its own",
            ),
            row(
                "signing_secret",
                Unset,
                "what `standard-webhooks` signs with: `whsec_` and the base64 of 24 to 64 bytes",
            ),
            row(
                "signing_secrets",
                Unset,
                "several, 8 at most: each forward carries a signature of every one, so that they can be rotated",
            ),
            row(
                "preserve_host",
                Is("false"),
                "send the original `Host` instead of the upstream's",
            ),
        ],
    },
    Table {
        name: "upstreams.NAME.retry",
        about: "How failed attempts are repeated: exponential, with full jitter.",
        restart: false,
        rows: &[
            row("first", Time(&defaults::RETRY_FIRST), "the first wait"),
            row("max", Time(&defaults::RETRY_MAX), "the longest wait"),
            row(
                "give_up_after",
                Time(&defaults::GIVE_UP_AFTER),
                "on no connection, no answer, 408, 409, 425, 429 and 5xx",
            ),
            row(
                "give_up_refused",
                Time(&defaults::GIVE_UP_REFUSED),
                "on 3xx and other 4xx; 410 is given up at once",
            ),
            row("max_attempts", Unset, "gives up after so many attempts"),
        ],
    },
    Table {
        name: "upstreams.NAME.tls",
        about: "What TLS needs beyond the system's root certificates; only with `https` in `url`. Files are PEM.",
        restart: false,
        rows: &[
            row("ca", Unset, "file: these authorities are believed, and no others"),
            row(
                "cert",
                Unset,
                "file: the certificate that is shown to an upstream that asks",
            ),
            row("key", Unset, "file: its key"),
            row(
                "server_name",
                Words("the host in `url`"),
                "the name in the upstream's certificate",
            ),
        ],
    },
    Table {
        name: "sources.NAME",
        about: "A sender: its path, its provider, its secrets.",
        restart: false,
        rows: &[
            row("path", Unset, "matched exactly, give or take one trailing slash"),
            row(
                "provider",
                Unset,
                "a preset (`hooksluice providers`) or a `[providers.NAME]` of your own",
            ),
            row("upstreams", Unset, "where its events go"),
            row(
                "secret",
                Unset,
                "the one secret; a source of a provider that signs needs this or `secrets`",
            ),
            row("secrets", Unset, "several: all are tried, so that they can be rotated"),
            row(
                "secret_unused_after",
                Time(&defaults::SECRET_UNUSED_AFTER),
                "a secret is said to be safe to remove once others were used for so long and it was not",
            ),
            row(
                "tolerance",
                Words("the provider's"),
                "age of a signature, where its time is signed",
            ),
            row("dedupe", Words("the provider's"), "what makes two deliveries the same"),
            row(
                "id_missing",
                Words("the provider's"),
                "without an id: known by its content, or refused with 400",
            ),
            row(
                "same_content",
                Text("off"),
                "`hold`: the same content under another id waits for a person",
            ),
            row("methods", Words("the provider's"), "others are answered 405"),
            row(
                "max_body",
                Within("the provider's, or `limits.body`", &defaults::MAX_BODY),
                "over it 413",
            ),
            row("allow", Words("all"), "client addresses; others are answered 403"),
            row(
                "client_certificates",
                Words("all"),
                "DNS names or URIs in clients' certificates, or `\"*\"` for any that `tls.client_ca` signed; others are answered 403",
            ),
            row("rate", Unset, "of verified requests; over it 429"),
            row(
                "ack_status",
                Words("the provider's (200)"),
                "status of the acknowledgement",
            ),
            row(
                "ack_body",
                Words("the provider's (empty)"),
                "body of the acknowledgement, 4,096 bytes at most",
            ),
            row(
                "forward_path",
                Words("as received"),
                "path and query that the upstream is sent",
            ),
            row(
                "public_url",
                Words("the top level's"),
                "this source's own, where the URL is signed",
            ),
            row(
                "accept_unsigned",
                Is("false"),
                "for `kind = \"none\"`: anybody who knows the path can send",
            ),
            row(
                "params",
                Unset,
                "second inputs of a scheme, where the provider's record names them",
            ),
            row("reply", Unset, "the app answers the sender, not hooksluice"),
            row(
                "late",
                Text("dead"),
                "what becomes of an event that was not answered in the sender's time; with `reply`",
            ),
            row(
                "replicas",
                Unset,
                "with `reply` and a store for each replica: retries reach the replica that had the first",
            ),
            row(
                "learn",
                Unset,
                "the provider hands the secret over in a request; it is taken while `hooksluice sources learn` lets it, and kept in \
                 the `directory` of `secrets`, which may be empty",
            ),
        ],
    },
    Table {
        name: "routes.NAME",
        about: "Requests that are no webhooks, passed on as they come.",
        restart: false,
        rows: &[
            row("path", Unset, "exact, or with everything below it: `/orders/{*rest}`"),
            row("upstream", Unset, "where they go"),
            row("timeout", Words("the upstream's"), "until the head of the answer"),
            row(
                "idle_timeout",
                Time(&defaults::ROUTE_IDLE_TIMEOUT),
                "how long an answer's body, or a WebSocket, may be silent",
            ),
            row("max_body", Text("off"), "of a request; over it 413"),
        ],
    },
    Table {
        name: "routes.NAME.idempotency",
        about: "A request with an `Idempotency-Key` is carried out once, and its answer given again.",
        restart: false,
        rows: &[
            row("scope", Unset, "whose keys they are; keys of two callers never meet"),
            row("methods", Is("[\"POST\", \"PATCH\"]"), "on others a key means nothing"),
            row("required", Is("false"), "without a key 400"),
            row("ttl", Time(&defaults::KEY_TTL), "how long a key is known"),
            row(
                "wait",
                Time(&defaults::KEY_WAIT),
                "for the answer of a call that still runs, before 409",
            ),
            row(
                "fingerprint",
                Text("bytes"),
                "what makes two bodies the same; `canonical-json` is RFC 8785",
            ),
            row(
                "max_body",
                Within("the route's, at most `limits.body`", &defaults::MAX_BODY),
                "of a request, which is held in memory; over it 413",
            ),
            row(
                "max_stored",
                Bytes(&defaults::MAX_STORED),
                "larger answers are passed on and not given again",
            ),
            row(
                "replay_headers",
                Is("[]"),
                "more headers of an answer that is given again",
            ),
            row("on_ambiguous", Text("hold"), "`retry` where the app knows keys itself"),
            row(
                "replicas",
                Unset,
                "with a store for each replica: repetitions find the replica that had the first",
            ),
        ],
    },
    Table {
        name: "secret reference",
        about: "`{ env = \"NAME\" }`, `{ file = \"/path\" }` or another, wherever a key takes a secret. A missing or empty secret \
                stops the start. One line end at the end is removed.",
        restart: false,
        rows: &[
            row("env", Unset, "name of the environment variable that holds it"),
            row("file", Unset, "path of the file that holds it"),
            row("value", Unset, "the secret itself; `check` warns about it"),
            row(
                "credential",
                Unset,
                "name of a systemd credential: a file of that name in `$CREDENTIALS_DIRECTORY`",
            ),
            row(
                "directory",
                Unset,
                "each file in it that is not hidden is a secret, with the file's name as label. In `secrets` of a source and \
                 `signing_secrets`",
            ),
            row(
                "label",
                Unset,
                "for people and metrics; never part of a key. In `secret` and `secrets` of a source",
            ),
            row(
                "scope",
                Unset,
                "tells endpoints apart that share a path; part of the dedupe key. In `secret` and `secrets` of a source",
            ),
            row(
                "not_after",
                Unset,
                "when it ends. In `secret` and `secrets` of a source",
            ),
        ],
    },
];

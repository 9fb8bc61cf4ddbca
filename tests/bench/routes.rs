//! `tests/bench/run`: what routes cost, as ratios to a bare proxy and a bare server measured in the same run.
//!
//! - *plain*: a route without `idempotency` against hyper-util's client behind hyper's server ([`bare_proxy`]);
//! - *first*: calls with keys of their own against the bare proxy: two durable writes more;
//! - *replay*: few keys, answered before the measurement began, against the bare server ([`bare`]), which checks an HMAC
//!   over the body where we make its fingerprint.
//!
//! Interleaved and closed-loop as in `ingest.rs`. The upstream answers at once, on a thread of this process.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark stops at the first surprise, talks to a terminal and rounds its figures"
)]

mod bare;
mod bare_proxy;
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod engines;
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses its part of it"
)]
#[path = "../harness/harness.rs"]
mod harness;
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod load;
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod server;
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::engines::{Engines, Kind};
use crate::load::{Load, Measured, Prepared};
use crate::server::{Process, Server, Usage};

/// Keys of the replayed calls.
const REPLAYED_KEYS: u64 = 256;
/// Asked for by the bare server.
const SECRET: &str = "bench-secret-0123456789abcdef";
const ROUTES: &str = "[routes.calls]\npath = \"/calls\"\nupstream = \"app\"\n\
                      idempotency = { required = true, scope = \"public\" }\n\
                      [routes.rest]\npath = \"/{*rest}\"\nupstream = \"app\"\n";

/// Measures routes against a bare proxy and a bare server.
#[derive(Debug, Parser)]
struct Args {
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Rounds; medians and spreads are over them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measured seconds of each cell (a warm-up of a quarter comes on top).
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    connections: Vec<usize>,
    /// Bytes of a request's body.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// The hooksluice to measure; by default the one that cargo built with this benchmark.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_hooksluice"))]
    server: PathBuf,
    /// What records are kept in.
    #[arg(long, value_enum, default_value_t = Kind::Sqlite)]
    store: Kind,
    /// Where the stores lie; must be the disk that counts.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    scratch: PathBuf,
    /// Runs the bare server (the benchmark starts itself this way).
    #[arg(long, hide = true, value_name = "ADDRESS")]
    bare: Option<SocketAddr>,
    /// Runs the bare proxy.
    #[arg(long, hide = true, value_name = "ADDRESS", requires = "upstream")]
    bare_proxy: Option<SocketAddr>,
    /// In front of this.
    #[arg(long, hide = true, value_name = "ADDRESS")]
    upstream: Option<SocketAddr>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    if let Some(address) = args.bare {
        return bare::run(address, SECRET.as_bytes());
    }
    if let (Some(address), Some(upstream)) = (args.bare_proxy, args.upstream) {
        return bare_proxy::run(address, upstream);
    }
    let rows = measure(&args);
    if args.json {
        println!("{}", Value::from(rows.iter().map(Row::json).collect::<Vec<_>>()));
    } else {
        print(&rows, args.size);
    }
    if rows.iter().any(|row| row.failed() > 0) {
        std::process::exit(1);
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Plain,
    First,
    Replay,
}

impl What {
    fn request(self, size: usize) -> Prepared {
        match self {
            Self::Plain => Prepared::plain(size),
            Self::First => Prepared::call(SECRET, size, None),
            Self::Replay => Prepared::call(SECRET, size, Some(REPLAYED_KEYS)),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain : bare proxy",
            Self::First => "first call : bare proxy",
            Self::Replay => "replay : bare server",
        }
    }
}

/// One kind of request over some connections.
#[derive(Debug)]
struct Row {
    what: What,
    connections: usize,
    rounds: Vec<(Side, Side)>,
}

/// One server's part in one round.
#[derive(Debug)]
struct Side {
    measured: Measured,
    cpu: Duration,
}

fn measure(args: &Args) -> Vec<Row> {
    let engines = Engines::start(args.store);
    let cells = [What::Plain, What::First, What::Replay];
    let mut rows: Vec<Row> = cells
        .into_iter()
        .flat_map(|what| {
            args.connections.iter().map(move |&connections| Row {
                what,
                connections,
                rounds: Vec::new(),
            })
        })
        .collect();
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        let scratch = tempfile::tempdir_in(&args.scratch).unwrap();
        let upstream = upstream::answering();
        let (bare, bare_proxy) = (Process::bare(), Process::bare_proxy(upstream.address()));
        let directory = scratch.path().join("routes");
        let ours = Server::start(&args.server, &directory, &engines, upstream.address(), SECRET, ROUTES);
        for row in &mut rows {
            let request = row.what.request(args.size);
            let other = if matches!(row.what, What::Replay) {
                &bare
            } else {
                &bare_proxy
            };
            let side = |process: &Process| {
                run(
                    &Load {
                        address: process.address(),
                        connections: row.connections,
                        request: request.clone(),
                        seconds: args.seconds,
                    },
                    process,
                )
            };
            let theirs = side(other);
            row.rounds.push((theirs, side(ours.process())));
        }
    }
    rows
}

fn run(load: &Load, process: &Process) -> Side {
    let mut marks: Vec<Usage> = Vec::new();
    let measured = load::run(load, || marks.push(process.usage()));
    let [before, after] = marks[..] else {
        panic!("the load marks its begin and end");
    };
    Side {
        cpu: after.since(before).cpu,
        measured,
    }
}

impl Side {
    fn rate(&self) -> f64 {
        self.measured.in_window as f64 / self.measured.window.as_secs_f64()
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.measured.in_window.max(1) as f64
    }

    fn p99_micros(&self) -> f64 {
        self.measured.percentile(0.99).as_secs_f64() * 1e6
    }
}

impl Row {
    /// The middle of the rounds, and the least and greatest.
    fn over_rounds(&self, value: impl Fn(&(Side, Side)) -> f64) -> [f64; 3] {
        let mut values: Vec<f64> = self.rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        [at(values.len() / 2), at(0), at(values.len().saturating_sub(1))]
    }

    fn failed(&self) -> u64 {
        let failed = |side: &Side| side.measured.failed;
        self.rounds.iter().map(|(bare, ours)| failed(bare) + failed(ours)).sum()
    }

    fn json(&self) -> Value {
        let both = |value: &dyn Fn(&Side) -> f64| {
            let [ratio, least, greatest] = self.over_rounds(|(bare, ours)| value(ours) / value(bare));
            json!({
                "bare": self.over_rounds(|(bare, _)| value(bare))[0],
                "hooksluice": self.over_rounds(|(_, ours)| value(ours))[0],
                "ratio": {"median": ratio, "least": least, "greatest": greatest},
            })
        };
        json!({
            "what": self.what.name(),
            "connections": self.connections,
            "requests_per_second": both(&Side::rate),
            "p99_micros": both(&Side::p99_micros),
            "server_cpu_micros": both(&Side::cpu_micros),
            "failed": self.failed(),
        })
    }
}

fn print(rows: &[Row], size: usize) {
    println!("Routes, {size} bytes of body (medians; ratios with least and greatest)");
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "hooksluice : measure",
        "conns",
        "requests/s",
        "ratio",
        "p99 µs",
        "CPU µs",
        "failed",
    ]);
    for row in rows {
        let pair = |value: &dyn Fn(&Side) -> f64, digits: usize| {
            let [ours, ..] = row.over_rounds(|(_, ours)| value(ours));
            let [bare, ..] = row.over_rounds(|(bare, _)| value(bare));
            format!("{ours:.digits$} : {bare:.digits$}")
        };
        let [ratio, least, greatest] = row.over_rounds(|(bare, ours)| ours.rate() / bare.rate());
        table.add_row([
            row.what.name().to_owned(),
            row.connections.to_string(),
            pair(&Side::rate, 0),
            format!("{ratio:.2} ({least:.2}-{greatest:.2})"),
            pair(&Side::p99_micros, 0),
            pair(&Side::cpu_micros, 1),
            row.failed().to_string(),
        ]);
    }
    println!("{table}");
}

//! `tests/bench/run`: what durability costs, as ratios to a bare hyper + HMAC server measured in the same run.
//!
//! Everything is interleaved: in each round the bare server and hooksluice answer the same load one after the other,
//! and ratios are formed within the round, so that a machine that slows down slows both. Medians and spreads are over
//! the rounds. The load is closed-loop (each connection waits for its answer), keep-alive, with prepared signed bodies
//! and unique ids.
//!
//! Two servers are measured: *burst* has an upstream that never answers, so that accepting and admission are measured
//! alone; *sustained* has one that answers at once, and the load is held back while more than
//! [`SUSTAINED_BACKLOG`] events wait, so that accepting, forwarding, settling and pruning run at one common rate.
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
mod disk;
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
mod report;
#[allow(dead_code, reason = "shared with the other benchmarks")]
mod server;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::engines::{Engines, Kind};
use crate::load::{Load, Measured, Prepared};
use crate::report::{Cell, Pair, Report, Sustained};
use crate::server::{Process, Server, Usage};

/// Events accepted and not yet forwarded at which the sustained load waits.
const SUSTAINED_BACKLOG: u64 = 20_000;
/// Shared by the load generator, the bare server and hooksluice.
const SECRET: &str = "bench-secret-0123456789abcdef";

/// Measures hooksluice against a bare hyper + HMAC server.
#[derive(Debug, Parser)]
struct Args {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Rounds; medians and spreads are over them.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measured seconds of each cell (a warm-up of a quarter comes on top).
    #[arg(long, default_value_t = 1.2)]
    seconds: f64,
    /// Measured seconds of the sustained run in each round; 0 leaves it out.
    #[arg(long, default_value_t = 5.0)]
    sustained_seconds: f64,
    /// Connections.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256])]
    connections: Vec<usize>,
    /// Body sizes in bytes.
    #[arg(long, value_delimiter = ',', default_values_t = [1024, 8192, 16384])]
    sizes: Vec<usize>,
    /// The hooksluice to measure; by default the one that cargo built with this benchmark.
    #[arg(long, default_value = env!("CARGO_BIN_EXE_hooksluice"))]
    server: PathBuf,
    /// What events are kept in. Engines are started by the benchmark and share the machine's cores.
    #[arg(long, value_enum, default_value_t = Kind::Sqlite)]
    store: Kind,
    /// Where the stores lie; must be the disk that counts.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    scratch: PathBuf,
    /// Runs the bare server (the benchmark starts itself this way).
    #[arg(long, hide = true, value_name = "ADDRESS")]
    bare: Option<SocketAddr>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    if let Some(address) = args.bare {
        return bare::run(address, SECRET.as_bytes());
    }
    let report = measure(&args);
    if args.json {
        println!("{}", report.json());
    } else {
        print!("{report}");
    }
    if report.failed() {
        std::process::exit(1);
    }
}

fn measure(args: &Args) -> Report {
    let engines = Engines::start(args.store);
    let mut report = Report::new(&args.sizes, &args.connections, args.store);
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        let scratch = tempfile::tempdir_in(&args.scratch).unwrap();
        report
            .disk
            .push(disk::sync_latency(scratch.path(), Duration::from_millis(700)));
        burst(args, &mut report, &engines, scratch.path());
        if args.sustained_seconds > 0.0 {
            sustained(args, &mut report, &engines, scratch.path());
        }
    }
    report
}

/// Both servers in turn over every cell.
fn burst(args: &Args, report: &mut Report, engines: &Engines, scratch: &std::path::Path) {
    let stalled = upstream::stalled();
    let bare = Process::bare();
    let server = Server::start(
        &args.server,
        &scratch.join("burst"),
        engines,
        stalled.address(),
        SECRET,
        "",
    );
    for cell in &mut report.cells {
        let load = |address| Load {
            address,
            connections: cell.connections,
            request: Prepared::webhook(SECRET, cell.size),
            seconds: args.seconds,
        };
        let bare = run(&load(bare.address()), &bare);
        let before = (server.process().usage(), engines.cpu());
        let ours = run(&load(server.address()), server.process());
        server.wait_until_admitted();
        let written = server.process().usage().since(before.0).written;
        let engines_cpu = engines.cpu().saturating_sub(before.1);
        let answered = ours.measured.answered.max(1) as f64;
        cell.rounds.push(Pair {
            bare,
            ours: ours.clone(),
            written_per_event: written as f64 / answered,
            engines_cpu_micros: engines_cpu.as_secs_f64() * 1e6 / answered,
        });
    }
    report.burst_peak_rss.push(server.process().peak_rss());
}

fn sustained(args: &Args, report: &mut Report, engines: &Engines, scratch: &std::path::Path) {
    let upstream = upstream::answering();
    let server = Server::start(
        &args.server,
        &scratch.join("sustained"),
        engines,
        upstream.address(),
        SECRET,
        "",
    );
    let load = Load {
        address: server.address(),
        connections: 64,
        request: Prepared::webhook(SECRET, 1024),
        seconds: args.sustained_seconds,
    };
    let forwarded = upstream.counter();
    let mut marks = Vec::new();
    let measured = load::run_held_back(&load, &forwarded, SUSTAINED_BACKLOG, || {
        marks.push((server.process().usage(), upstream.count(), engines.cpu()));
    });
    let [
        (before, count_before, engines_before),
        (after, count_after, engines_after),
    ] = marks[..]
    else {
        panic!("the load marks its begin and end");
    };
    let usage = after.since(before);
    let events = (count_after - count_before).max(1);
    server.wait_until_delivered(&upstream, measured.sent);
    report.sustained.push(Sustained {
        events_per_second: events as f64 / measured.window.as_secs_f64(),
        cpu_micros_per_event: usage.cpu.as_secs_f64() * 1e6 / events as f64,
        engines_cpu_micros: engines_after.saturating_sub(engines_before).as_secs_f64() * 1e6 / events as f64,
        written_per_event: usage.written as f64 / events as f64,
        peak_rss: server.process().peak_rss(),
        failed: measured.failed,
    });
}

/// One load on one server, with what the server's process used meanwhile.
fn run(load: &Load, process: &Process) -> Run {
    let mut marks: Vec<Usage> = Vec::new();
    let measured = load::run(load, || marks.push(process.usage()));
    let [before, after] = marks[..] else {
        panic!("the load marks its begin and end");
    };
    Run {
        cpu: after.since(before).cpu,
        measured,
    }
}

/// One server in one cell of one round.
#[derive(Clone, Debug)]
struct Run {
    measured: Measured,
    cpu: Duration,
}

impl Run {
    fn rate(&self) -> f64 {
        self.measured.in_window as f64 / self.measured.window.as_secs_f64()
    }

    fn cpu_micros(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.measured.in_window.max(1) as f64
    }
}

impl Report {
    fn new(sizes: &[usize], connections: &[usize], store: Kind) -> Self {
        let cells = sizes
            .iter()
            .flat_map(|&size| connections.iter().map(move |&connections| Cell::new(size, connections)));
        Self {
            cells: cells.collect(),
            engines: (store != Kind::Sqlite).then_some(store),
            ..Self::default()
        }
    }
}

//! `cargo bench --bench store`: the store alone, without HTTP: what an append, an admission and a settle cost, and how
//! that grows with the number of stored keys.
//!
//! Each stage first brings the store to a number of keys (small events, settled and pruned as they go), then measures a
//! *burst* (producers append 1 KiB events, nobody takes dispatches), how fast its tail is *admitted*, and a *sustained*
//! run (everything is delivered and settled at once). The rates are for comparing stages and machines, the CPU per
//! event is the writer thread's own.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a benchmark stops at the first surprise, talks to a terminal and rounds its figures"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use hooksluice::id::{SourceName, UpstreamName};
use hooksluice::key::{self, DedupeRule, IdMissing, Part};
use hooksluice::request::{RawRequest, RequestHead};
use hooksluice::secret::Secret;
use hooksluice::store::model::{Finished, NewEvent, Next, Outcome};
use hooksluice::store::settings::{LaneSettings, StoreSettings};
use hooksluice::store::{Counts, Store};
use hooksluice::time::Clock;
use hooksluice::verify::{SourceSecret, Verified, Verifier, VerifierOptions, presets};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

/// Measures the embedded store.
#[derive(Debug, Parser)]
struct Args {
    /// Numbers of stored keys, in thousands, rising.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1000, 5000])]
    keys: Vec<u64>,
    /// Producers that each wait for their receipt.
    #[arg(long, default_value_t = 64)]
    producers: usize,
    /// Bytes of a body in the measured runs.
    #[arg(long, default_value_t = 1024)]
    body: usize,
    /// Seconds of each measured run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Leave this many dispatches pending at the end and measure opening with them.
    #[arg(long, default_value_t = 0)]
    pending: u64,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    json: bool,
    /// Where the store lies; must be the disk that counts.
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    directory: PathBuf,
    /// Passed by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let args = Args::parse();
    let directory = tempfile::tempdir_in(&args.directory).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run(&args, directory.path()));
}

async fn run(args: &Args, directory: &Path) {
    let bench = Bench::open(directory).await;
    if !args.json {
        print_header();
    }
    let mut curve = Vec::new();
    for keys in &args.keys {
        let wanted = keys * 1000;
        while bench.keys() < wanted {
            bench.sustained(512, 64, Duration::from_secs(5), Some(wanted)).await;
        }
        bench.rest().await;
        let seconds = Duration::from_secs_f64(args.seconds);
        let burst = bench.burst(args.producers, args.body, seconds).await;
        let admit = bench.drain().await;
        bench.take_all().await;
        let sustained = bench.sustained(args.producers, args.body, seconds, None).await;
        if args.json {
            curve.push(serde_json::json!({
                "keys": bench.keys(),
                "burst_events_per_second": burst.rate,
                "burst_writer_micros": burst.writer_us,
                "burst_written_bytes_per_event": burst.bytes,
                "admitted_per_second": admit.rate,
                "admission_writer_micros": admit.writer_us,
                "sustained_events_per_second": sustained.rate,
                "sustained_writer_micros": sustained.writer_us,
                "sustained_written_bytes_per_event": sustained.bytes,
                "resident_mb": resident_mb(),
            }));
            continue;
        }
        println!(
            "{:>7}k {:>10.0} {:>9.2} {:>9.0} {:>9.1} {:>10.0} {:>9.2} {:>10.0} {:>9.2} {:>9.0} {:>7}",
            bench.keys() / 1000,
            burst.rate,
            burst.writer_us,
            burst.bytes,
            burst.batch,
            admit.rate,
            admit.writer_us,
            sustained.rate,
            sustained.writer_us,
            sustained.bytes,
            resident_mb(),
        );
    }
    if args.json {
        println!("{}", serde_json::json!({"store_curve": curve}));
    }
    if args.pending > 0 {
        let until = bench.keys() + args.pending;
        while bench.keys() < until {
            bench.burst(512, args.body, Duration::from_secs(2)).await;
        }
        bench.drain().await;
        let Bench { store, clock, .. } = bench;
        println!("resident with the backlog: {} MB", resident_mb());
        store.close().await;
        let start = clock.monotonic();
        let again = Bench::open(directory).await;
        println!(
            "opened with {} pending in {:?}, resident {} MB",
            pending(&again.store.counts().await.unwrap()),
            clock.monotonic().since(start),
            resident_mb()
        );
    }
}

fn print_header() {
    println!(
        "{:>8} {:>10} {:>9} {:>9} {:>9} {:>10} {:>9} {:>10} {:>9} {:>9} {:>7}",
        "keys",
        "burst/s",
        "us/event",
        "B/event",
        "batch",
        "admit/s",
        "us/event",
        "sustain/s",
        "us/event",
        "B/event",
        "RSS MB"
    );
}

fn pending(counts: &Counts) -> u64 {
    use hooksluice::store::model::DispatchState::{Leased, Pending};
    counts
        .upstreams
        .values()
        .map(|upstream| upstream.states[&Pending] + upstream.states[&Leased])
        .sum()
}

/// What a run measured.
struct Measured {
    rate: f64,
    /// CPU of the writer thread per event.
    writer_us: f64,
    /// Written to the device per event.
    bytes: f64,
    /// Events per sync, about: from the notices' side unknown, so by voluntary switches of the writer.
    batch: f64,
}

struct Bench {
    store: Store,
    clock: Clock,
    verifier: Arc<Verifier>,
    upstreams: Arc<[UpstreamName]>,
    next_id: Arc<AtomicU64>,
    admitted: Arc<AtomicU64>,
}

impl Bench {
    async fn open(directory: &Path) -> Self {
        let clock = Clock::system();
        let settings = StoreSettings {
            retention: Duration::from_secs(1),
            max_bytes: u64::MAX,
            ..StoreSettings::embedded(directory.join("store"))
        };
        let admitted = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&admitted);
        let upstreams: Arc<[UpstreamName]> = Arc::from([UpstreamName::new("app")]);
        let lanes = upstreams
            .iter()
            .cloned()
            .map(|upstream| LaneSettings { upstream, units: 16 });
        let lanes = lanes.collect();
        let store = Store::open(
            settings,
            lanes,
            clock.clone(),
            Box::new(move |_notice| {
                told.fetch_add(1, Ordering::Relaxed);
            }),
        )
        .await
        .unwrap();
        let secret = SourceSecret::new(Secret::new("bench-token-0123456789"));
        let record = presets::find("gitlab").unwrap();
        Self {
            store,
            verifier: Arc::new(Verifier::new(record, vec![secret], VerifierOptions::default()).unwrap()),
            upstreams,
            next_id: Arc::new(AtomicU64::new(clock.now().as_millis().unsigned_abs() * 1_000_000)),
            admitted,
            clock,
        }
    }

    fn keys(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Producers append until `time` is over; returns how many they appended.
    fn produce(
        &self,
        producers: usize,
        body: usize,
        time: Duration,
        until: Option<u64>,
    ) -> Vec<tokio::task::JoinHandle<u64>> {
        let end = self.clock.monotonic().after(time);
        let body = Bytes::from(vec![b'x'; body]);
        (0..producers)
            .map(|_producer| {
                let (store, clock) = (self.store.clone(), self.clock.clone());
                let (verifier, upstreams) = (Arc::clone(&self.verifier), Arc::clone(&self.upstreams));
                let (next_id, admitted) = (Arc::clone(&self.next_id), Arc::clone(&self.admitted));
                let body = body.clone();
                task(async move {
                    let mut appended = 0;
                    while clock.monotonic() < end && until.is_none_or(|until| admitted.load(Ordering::Relaxed) < until)
                    {
                        let id = next_id.fetch_add(1, Ordering::Relaxed);
                        store
                            .append(event(&verifier, &upstreams, id, &body, &clock))
                            .await
                            .unwrap();
                        appended += 1;
                    }
                    appended
                })
            })
            .collect()
    }

    async fn burst(&self, producers: usize, body: usize, time: Duration) -> Measured {
        let meter = Meter::start(&self.clock);
        let mut events = 0;
        for producer in self.produce(producers, body, time, None) {
            events += producer.await.unwrap();
        }
        meter.stop(&self.clock, events)
    }

    /// Waits until nothing is unadmitted.
    async fn drain(&self) -> Measured {
        let before = self.keys();
        let meter = Meter::start(&self.clock);
        while self.store.counts().await.unwrap().unadmitted > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        meter.stop(&self.clock, self.keys() - before)
    }

    /// Waits until what was delivered is pruned, so that a burst is measured alone.
    async fn rest(&self) {
        use hooksluice::store::model::DispatchState::Delivered;
        let delivered = |counts: &Counts| {
            counts
                .upstreams
                .values()
                .any(|upstream| upstream.states[&Delivered] > 0)
        };
        while delivered(&self.store.counts().await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Delivers all that is pending.
    async fn take_all(&self) {
        let consumer = self.consume();
        while pending(&self.store.counts().await.unwrap()) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        consumer.abort();
    }

    fn consume(&self) -> tokio::task::JoinHandle<()> {
        let mut feed = self.store.feed(self.upstreams.first().unwrap()).unwrap();
        let (store, clock) = (self.store.clone(), self.clock.clone());
        task(async move {
            while let Some(lease) = feed.next().await {
                let settled = store.settle(
                    Finished {
                        reply: None,
                        lease,
                        outcome: Outcome::Delivered { status: StatusCode::OK },
                        started_at: clock.now(),
                        took: Duration::from_millis(3),
                        excerpt: Bytes::from_static(b"ok"),
                    },
                    Next::Delivered,
                );
                drop(settled);
                tokio::task::yield_now().await;
            }
        })
    }

    /// Producers and a consumer; ends when all is delivered.
    async fn sustained(&self, producers: usize, body: usize, time: Duration, until: Option<u64>) -> Measured {
        let meter = Meter::start(&self.clock);
        let consumer = self.consume();
        let mut events = 0;
        for producer in self.produce(producers, body, time, until) {
            events += producer.await.unwrap();
        }
        loop {
            let counts = self.store.counts().await.unwrap();
            if counts.unadmitted == 0 && pending(&counts) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        consumer.abort();
        meter.stop(&self.clock, events)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the benchmark ends with its process; no tracker waits for its tasks"
)]
fn task<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}

fn event(verifier: &Verifier, upstreams: &Arc<[UpstreamName]>, id: u64, body: &Bytes, clock: &Clock) -> NewEvent {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static("bench/1.0 (store)"));
    headers.insert("x-gitlab-token", HeaderValue::from_static("bench-token-0123456789"));
    headers.insert("x-gitlab-event", HeaderValue::from_static("Push Hook"));
    let id = HeaderValue::from_str(&format!("{id:032x}")).unwrap();
    headers.insert("idempotency-key", id.clone());
    headers.insert("x-gitlab-event-uuid", id.clone());
    headers.insert("x-gitlab-webhook-uuid", id);
    let request = RawRequest {
        head: RequestHead {
            method: Method::POST,
            target: "/webhooks/gitlab".parse().unwrap(),
            authority: Some("hooks.example.com".to_owned()),
            headers,
            client: "127.0.0.1".parse().unwrap(),
            received_at: clock.now(),
        },
        body: body.clone(),
    };
    let Ok(Verified::Event(request)) = verifier.verify(request) else {
        panic!("not verified")
    };
    let rule = DedupeRule {
        parts: vec![Part::Id],
        id_missing: IdMissing::Reject,
        hold_same_content: false,
        body_varies: false,
    };
    NewEvent {
        source: SourceName::new("bench"),
        upstreams: Arc::clone(upstreams),
        key: key::dedupe_key(&request, &rule).unwrap(),
        content: None,
        body_mark: key::body_mark(&request),
        request,
        awaited: false,
    }
}

/// Readings before a run.
struct Meter {
    at: hooksluice::time::Monotonic,
    writer: Duration,
    switches: u64,
    written: u64,
}

impl Meter {
    fn start(clock: &Clock) -> Self {
        let (writer, switches) = writer_cpu();
        Self {
            at: clock.monotonic(),
            writer,
            switches,
            written: written(),
        }
    }

    fn stop(&self, clock: &Clock, events: u64) -> Measured {
        let time = clock.monotonic().since(self.at);
        let (writer, switches) = writer_cpu();
        let events = events.max(1) as f64;
        Measured {
            rate: events / time.as_secs_f64(),
            writer_us: (writer - self.writer).as_secs_f64() * 1e6 / events,
            bytes: (written() - self.written) as f64 / events,
            batch: events / (switches - self.switches).max(1) as f64,
        }
    }
}

/// CPU time of the store's writer thread, and how often it waited.
fn writer_cpu() -> (Duration, u64) {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else {
            continue;
        };
        if name.trim() == "store-writer" {
            let sched = std::fs::read_to_string(task.join("schedstat")).unwrap();
            let nanos: u64 = sched.split_whitespace().next().unwrap().parse().unwrap();
            let status = std::fs::read_to_string(task.join("status")).unwrap();
            return (Duration::from_nanos(nanos), field(&status, "voluntary_ctxt_switches:"));
        }
    }
    (Duration::ZERO, 0)
}

fn written() -> u64 {
    field(&std::fs::read_to_string("/proc/self/io").unwrap(), "write_bytes:")
}

fn resident_mb() -> u64 {
    field(&std::fs::read_to_string("/proc/self/status").unwrap(), "VmRSS:") / 1024
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

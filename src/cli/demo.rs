//! `hooksluice demo`: the whole story in one terminal.
//!
//! A real server (this very program as a child process, on an embedded store in a temporary folder), a sample upstream
//! and a sender play scenes one after the other. What happened is read where it counts: in the sender's answers, at
//! the upstream, and in the store through the admin API. A scene is right only if all of them agree.

mod sender;
mod server;
mod upstream;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use comfy_table::{Table, presets};

use self::sender::{Answer, Sender};
use self::server::{Paths, Server};
use self::upstream::{JOBS, Mood, Seen, Upstream};
use super::client;
use crate::admin::dto::{EventDetail, EventPage, Replay, Replayed, Status};
use crate::time::Clock;

/// Signs what the demo sends; both sources use it.
const SECRET: &str = "demo-secret-0123456789abcdef";
/// Everything takes about two seconds; what takes longer is broken.
const LONGEST: Duration = Duration::from_secs(60);
/// How long one step may take until what it should lead to is seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Arguments of `hooksluice demo`.
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Plays all scenes. Exit 0 only if every one came out right.
pub fn run(_args: Args) -> anyhow::Result<ExitCode> {
    let right = client::block_on(async {
        tokio::time::timeout(LONGEST, play())
            .await
            .with_context(|| format!("the demo did not end within {LONGEST:?}"))?
    })?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play() -> anyhow::Result<bool> {
    let paths = Paths::create()?;
    let mut stage = Stage::build(&paths).await?;
    say(&format!(
        "A server (process {}), its store in {}, two sample upstreams, and a sender.\n",
        stage.server.process_id(),
        paths.directory().display()
    ))?;
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "scene",
        "sender saw",
        "upstream saw",
        "store says",
        "right",
    ]);
    let mut all_right = true;
    for number in 1.. {
        let (title, outcome) = match number {
            1 => ("1. normal", stage.normal().await),
            2 => ("2. repeated", stage.repeated().await),
            3 => ("3. tampered", stage.tampered().await),
            4 => ("4. killed after the 200", stage.killed().await),
            5 => ("5. upstream down, then up", stage.down_then_up().await),
            6 => ("6. upstream down for good", stage.down_for_good().await),
            7 => ("7. Idempotency-Key", stage.idempotency_key().await),
            _ => break,
        };
        say("")?;
        match outcome {
            Ok(row) => {
                table.add_row([title, &row.sender, &row.upstream, &row.store, "yes"]);
            }
            Err(error) => {
                all_right = false;
                say(&format!("   WRONG: {error:#}\n"))?;
                table.add_row([title, "", "", &format!("{error:#}"), "NO"]);
            }
        }
    }
    say(&format!("{table}"))?;
    stage.server.stop(PATIENCE).await?;
    if all_right {
        say("\nAll of it came out right.")?;
    } else {
        let kept = paths.keep();
        say(&format!(
            "\nSomething went wrong; the server's log is {}",
            kept.display()
        ))?;
    }
    Ok(all_right)
}

/// A line for the person.
fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// What a scene led to, in the words of the table.
struct Row {
    sender: String,
    upstream: String,
    store: String,
}

/// Everything that plays a part.
struct Stage<'p> {
    paths: &'p Paths,
    clock: Clock,
    server: Server,
    sender: Sender,
    /// Gets what comes in at `/hooks/shop`; its dispatches are retried for days.
    app: Upstream,
    /// Gets what comes in at `/hooks/billing`; its dispatches are given up after two attempts.
    reports: Upstream,
    /// The first event's id, which its repetition must not change.
    first: Option<String>,
}

impl<'p> Stage<'p> {
    async fn build(paths: &'p Paths) -> anyhow::Result<Self> {
        let app = Upstream::start(SECRET).await?;
        let reports = Upstream::start(SECRET).await?;
        paths.write_configuration(app.address(), reports.address())?;
        let server = Server::start(paths, SECRET, PATIENCE).await?;
        Ok(Self {
            paths,
            clock: Clock::system(),
            server,
            sender: Sender::new(SECRET),
            app,
            reports,
            first: None,
        })
    }

    async fn normal(&mut self) -> anyhow::Result<Row> {
        say("1. A normal delivery")?;
        let answer = self.send("/hooks/shop", "evt_1", r#"{"job":"job_1"}"#).await?;
        ensure!(answer.status == 200, "the sender saw {}", answer.status);
        let seen = self.forwarded(&self.app, "evt_1", 1).await?;
        ensure!(*seen.body == *br#"{"job":"job_1"}"#, "the body changed on the way");
        ensure!(seen.signature_holds, "the signature no longer holds at the upstream");
        self.first = Some(seen.event.clone());
        let store = self.store_says(&seen.event, "delivered").await?;
        Ok(Row {
            sender: answer.status.to_string(),
            upstream: "evt_1 once, same bytes, signature holds".to_owned(),
            store,
        })
    }

    async fn repeated(&mut self) -> anyhow::Result<Row> {
        say("2. The same delivery again (its answer was lost)")?;
        let before = self.status().await?;
        let answer = self.send("/hooks/shop", "evt_1", r#"{"job":"job_1"}"#).await?;
        ensure!(answer.status == 200, "the sender saw {}", answer.status);
        self.until("the duplicate to be counted", async || {
            let now = self.status().await?;
            Ok((duplicates(&now) == duplicates(&before) + 1).then_some(()))
        })
        .await?;
        say("   store      knows evt_1 already: not forwarded again")?;
        let seen = self.app.seen("evt_1");
        ensure!(seen.len() == 1, "the upstream saw it {} times", seen.len());
        let events = self.events("source=shop&delivery_id=evt_1").await?;
        ensure!(events.events.len() == 1, "the store has {} events", events.events.len());
        ensure!(
            events.events.first().map(|event| &event.id) == self.first.as_ref(),
            "the surviving event is another one"
        );
        Ok(Row {
            sender: answer.status.to_string(),
            upstream: "nothing more".to_owned(),
            store: "one event, one duplicate counted".to_owned(),
        })
    }

    async fn tampered(&mut self) -> anyhow::Result<Row> {
        say("3. The body was changed on the way")?;
        let answer = self
            .sender
            .send_tampered(
                self.server.address(),
                "/hooks/shop",
                "evt_2",
                r#"{"job":"job_2"}"#,
                r#"{"job":"job_9"}"#,
            )
            .await?;
        tell(&answer, "/hooks/shop", "evt_2")?;
        ensure!(answer.status == 401, "the sender saw {}", answer.status);
        ensure!(answer.body.is_empty(), "the refusal says more than it should");
        let events = self.events("source=shop&delivery_id=evt_2").await?;
        ensure!(events.events.is_empty(), "it was stored");
        ensure!(self.app.seen("evt_2").is_empty(), "it was forwarded");
        say("   store      nothing stored, nothing forwarded; the reason is in the log and in the metrics")?;
        Ok(Row {
            sender: "401, empty".to_owned(),
            upstream: "nothing".to_owned(),
            store: "nothing".to_owned(),
        })
    }

    async fn killed(&mut self) -> anyhow::Result<Row> {
        say("4. The server is killed (SIGKILL) right after its 200, and started again")?;
        self.app.set_mood(Mood::Hangs);
        let answer = self.send("/hooks/shop", "evt_3", r#"{"job":"job_3"}"#).await?;
        self.server.kill()?;
        say("   server     killed: no chance to finish anything")?;
        ensure!(answer.status == 200, "the sender saw {}", answer.status);
        ensure!(
            !self.app.seen("evt_3").iter().any(|seen| seen.answered),
            "the upstream had answered before the kill"
        );
        // Closes its connections: what the killed server had sent may still wait in one, and is not to be answered.
        self.app.stop().await;
        self.app.set_mood(Mood::Answers);
        self.app.start_again().await?;
        self.server = Server::start(self.paths, SECRET, PATIENCE).await?;
        say(&format!(
            "   server     started again, process {}",
            self.server.process_id()
        ))?;
        let seen = self.forwarded(&self.app, "evt_3", 1).await?;
        let events: Vec<String> = self.app.seen("evt_3").into_iter().map(|seen| seen.event).collect();
        ensure!(
            events.iter().all(|event| *event == seen.event),
            "attempts of one event carry several ids"
        );
        let store = self.store_says(&seen.event, "delivered").await?;
        Ok(Row {
            sender: answer.status.to_string(),
            upstream: format!("evt_3 answered once, attempt {}", seen.attempt),
            store,
        })
    }

    async fn down_then_up(&mut self) -> anyhow::Result<Row> {
        say("5. The upstream is down for a while")?;
        self.app.stop().await;
        let answer = self.send("/hooks/shop", "evt_4", r#"{"job":"job_4"}"#).await?;
        ensure!(answer.status == 200, "the sender saw {}", answer.status);
        let event = self.event_of("shop", "evt_4").await?;
        let failed = self.until("a failed attempt", async || {
            let detail = self.event(&event).await?;
            Ok(detail.attempts.into_iter().next())
        });
        let failed = failed.await?;
        say(&format!(
            "   upstream   unreachable: attempt {} {}",
            failed.number, failed.outcome
        ))?;
        self.app.start_again().await?;
        say("   upstream   back")?;
        let seen = self.forwarded(&self.app, "evt_4", 1).await?;
        ensure!(seen.attempt > 1, "it got through at the first attempt");
        let store = self.store_says(&event, "delivered").await?;
        Ok(Row {
            sender: format!("{}, at once", answer.status),
            upstream: format!("evt_4 at attempt {}", seen.attempt),
            store,
        })
    }

    async fn down_for_good(&mut self) -> anyhow::Result<Row> {
        say("6. Another upstream is down for good, until a person replays")?;
        self.reports.stop().await;
        let answer = self.send("/hooks/billing", "evt_5", r#"{"invoice":5}"#).await?;
        ensure!(answer.status == 200, "the sender saw {}", answer.status);
        let event = self.event_of("billing", "evt_5").await?;
        self.store_says(&event, "dead").await?;
        let alert = self.until("the alert in the log", async || self.paths.error_about(&event));
        say(&format!("   log        {}", alert.await?))?;
        let dead = self
            .server
            .metric(r#"hooksluice_dead_total{upstream="reports"}"#)
            .await?;
        ensure!(dead == "1", "hooksluice_dead_total says {dead}");
        self.reports.start_again().await?;
        say(&format!("   person     hooksluice events replay {event}"))?;
        let path = format!("/api/v1/events/{}/replay", client::escaped(&event));
        let replayed: Replayed = self.server.admin().post(&path, &Replay::default()).await?;
        ensure!(
            replayed.dispatches == 1,
            "{} dispatches were replayed",
            replayed.dispatches
        );
        let seen = self.forwarded(&self.reports, "evt_5", 1).await?;
        ensure!(seen.replay, "the forward is not marked as a replay");
        ensure!(seen.event == event, "the replay carries another id");
        let store = self.store_says(&event, "delivered").await?;
        Ok(Row {
            sender: format!("{}, at once", answer.status),
            upstream: format!("evt_5 by replay, attempt {}", seen.attempt),
            store: format!("dead and kept, alerted, then {store}"),
        })
    }

    async fn idempotency_key(&mut self) -> anyhow::Result<Row> {
        say("7. A client calls the app's own API, loses the answer, and calls again")?;
        let first = self.call(Some("key_1"), r#"{"video":1}"#).await?;
        ensure!(
            first.status == 202 && !first.replayed,
            "the first call saw {}",
            first.status
        );
        let again = self.call(Some("key_1"), r#"{"video":1}"#).await?;
        ensure!(
            (again.status, again.replayed, &again.body) == (202, true, &first.body),
            "the second call saw {}",
            again.status
        );
        self.server.kill()?;
        self.server = Server::start(self.paths, SECRET, PATIENCE).await?;
        say(&format!(
            "   server     killed (SIGKILL) and started again, process {}",
            self.server.process_id()
        ))?;
        let again = self.call(Some("key_1"), r#"{"video":1}"#).await?;
        ensure!(
            (again.status, again.replayed, &again.body) == (202, true, &first.body),
            "after the restart the call saw {}",
            again.status
        );
        let other = self.call(Some("key_1"), r#"{"video":2}"#).await?;
        ensure!(
            other.status == 422,
            "the same key with another body saw {}",
            other.status
        );
        ensure!(self.app.jobs() == 1, "the app began {} jobs", self.app.jobs());
        let without = self.call(None, r#"{"video":1}"#).await?;
        ensure!(without.status == 202, "the call without a key saw {}", without.status);
        ensure!(self.app.jobs() == 2, "the app began {} jobs", self.app.jobs());
        say("   upstream   began one job for the key, and one for the call without a key")?;
        Ok(Row {
            sender: "202, the same 202 twice, 422".to_owned(),
            upstream: "one job for one key".to_owned(),
            store: "the answer, also after a kill".to_owned(),
        })
    }

    async fn call(&self, key: Option<&str>, body: &'static str) -> anyhow::Result<Answer> {
        let answer = self.sender.call(self.server.address(), JOBS, key, body).await?;
        // A refusal explains itself at length.
        let job = String::from_utf8_lossy(&answer.body);
        let said = if answer.status == 202 { job } else { "refused".into() };
        say(&format!(
            "   client     POST {JOBS} {body}, {}: {} {said}{}",
            key.unwrap_or("no key"),
            answer.status,
            if answer.replayed { ", replayed" } else { "" }
        ))?;
        Ok(answer)
    }

    async fn send(&self, path: &str, delivery: &str, body: &str) -> anyhow::Result<Answer> {
        let answer = self.sender.send(self.server.address(), path, delivery, body).await?;
        tell(&answer, path, delivery)?;
        Ok(answer)
    }

    /// The attempt that the upstream answered, once `count` were.
    async fn forwarded(&self, upstream: &Upstream, delivery: &str, count: usize) -> anyhow::Result<Seen> {
        let answered = self.until("the forward", async || {
            let mut answered = upstream.seen(delivery);
            answered.retain(|seen| seen.answered);
            Ok((answered.len() >= count).then_some(answered))
        });
        let mut answered = answered.await?;
        ensure!(
            answered.len() == count,
            "{delivery} was answered {} times",
            answered.len()
        );
        let seen = answered.pop().context("no forward")?;
        say(&format!(
            "   upstream   {delivery}, attempt {}, {} bytes, signature {}",
            seen.attempt,
            seen.body.len(),
            if seen.signature_holds { "holds" } else { "BROKEN" }
        ))?;
        Ok(seen)
    }

    /// Waits until all dispatches of `event` are in `state`, and says so.
    async fn store_says(&self, event: &str, state: &str) -> anyhow::Result<String> {
        let what = format!("the store to say {state}");
        let detail = self.until(&what, async || {
            let detail = self.event(event).await?;
            let dispatches = &detail.summary.dispatches;
            let there = !dispatches.is_empty() && dispatches.iter().all(|dispatch| dispatch.state == state);
            Ok(there.then_some(detail))
        });
        let attempts = detail.await?.attempts.len();
        let word = if attempts == 1 { "attempt" } else { "attempts" };
        say(&format!("   store      {state} after {attempts} {word}"))?;
        Ok(format!("{state}, {attempts} {word}"))
    }

    async fn event(&self, id: &str) -> anyhow::Result<EventDetail> {
        let path = format!("/api/v1/events/{}", client::escaped(id));
        Ok(self.server.admin().get(&path).await?)
    }

    async fn events(&self, query: &str) -> anyhow::Result<EventPage> {
        Ok(self.server.admin().get(&format!("/api/v1/events?{query}")).await?)
    }

    /// The id of the only event with this delivery id.
    async fn event_of(&self, source: &str, delivery: &str) -> anyhow::Result<String> {
        let page = self.events(&format!("source={source}&delivery_id={delivery}")).await?;
        let event = page.events.into_iter().next().context("the store does not have it")?;
        Ok(event.id)
    }

    async fn status(&self) -> anyhow::Result<Status> {
        Ok(self.server.admin().get("/api/v1/status").await?)
    }

    async fn until<T>(
        &self,
        what: &str,
        mut probe: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        let start = self.clock.monotonic();
        loop {
            if let Some(found) = probe().await? {
                return Ok(found);
            }
            ensure!(
                self.clock.monotonic().since(start) < PATIENCE,
                "waited {PATIENCE:?} for {what}"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn tell(answer: &Answer, path: &str, delivery: &str) -> io::Result<()> {
    say(&format!(
        "   sender     POST {path}, delivery {delivery}: {} after {:.1} ms",
        answer.status,
        answer.took.as_secs_f64() * 1e3
    ))
}

fn duplicates(status: &Status) -> u64 {
    status.sources.iter().map(|source| source.duplicates).sum()
}

//! [`Link`]: one connection that commands are pipelined over, with a deadline for each question.
//!
//! On a single node (and behind Sentinels) this is a `MultiplexedConnection` whose driver runs in a task of ours. The
//! library does nothing by itself there: it neither reconnects nor repeats. A question that is given up is forgotten,
//! not taken back, and its late answer is thrown away in its turn, so that answers never shift.
//!
//! In a Cluster the library does more: it keeps a connection to each node, follows `MOVED` and `ASK`, refreshes the map
//! of slots, and repeats a command after a lost connection, `TRYAGAIN`, `CLUSTERDOWN`, `LOADING` or `READONLY`, as long
//! as the asker still waits. Why each of our commands may be repeated is told in [`super`].

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, Pipeline, Value};
use tokio_util::sync::CancellationToken;

use super::address::Endpoint;
use super::commands::{Silence, answered};

/// An open connection. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: Connection,
    /// Cancelled when it is of no use any more; ends its driver.
    pub(super) lost: CancellationToken,
    /// Whom the Sentinels named, if they were asked.
    pub(super) master: Option<Endpoint>,
}

#[derive(Clone)]
pub(super) enum Connection {
    /// To one server.
    Node(MultiplexedConnection),
    /// To all nodes of a Cluster.
    Cluster(ClusterConnection),
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.connection {
            Connection::Node(_) => "node",
            Connection::Cluster(_) => "cluster",
        };
        write!(f, "Link({kind}, lost: {})", self.lost.is_cancelled())
    }
}

impl Link {
    /// Asks one question.
    pub(super) async fn ask(&self, command: Cmd, within: Duration) -> Result<Value, Silence> {
        let asked = async {
            match &self.connection {
                Connection::Node(node) => node.clone().send_packed_command(&command).await,
                Connection::Cluster(cluster) => cluster.clone().req_packed_command(&command).await,
            }
        };
        let answer = match tokio::time::timeout(within, asked).await {
            Ok(Ok(value)) => answered(value),
            Ok(Err(error)) => Err(Silence::of(error)),
            Err(_elapsed) => Err(Silence::TimedOut),
        };
        self.notice(&answer);
        answer
    }

    /// Asks many at once and answers in their order: one pipeline on a single node; in a Cluster, where each key may be at
    /// another node, all at the same time.
    pub(super) async fn ask_all(&self, commands: Vec<Cmd>, within: Duration) -> Vec<Result<Value, Silence>> {
        let Connection::Node(node) = &self.connection else {
            return together(commands.into_iter().map(|command| self.ask(command, within))).await;
        };
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let mut node = node.clone();
        let answers = tokio::time::timeout(within, node.send_packed_commands(&pipeline, 0, count)).await;
        let answers: Vec<Result<Value, Silence>> = match answers {
            Ok(Ok(values)) if values.len() == count => values.into_iter().map(answered).collect(),
            Ok(Ok(_)) => all(count, || Err(Silence::TimedOut)),
            Ok(Err(error)) => all(count, || Err(Silence::of(error.clone()))),
            Err(_elapsed) => all(count, || Err(Silence::TimedOut)),
        };
        for answer in &answers {
            self.notice(answer);
        }
        answers
    }

    /// A connection that has failed, or whose server may not be written to any more, is replaced. A Cluster's connections
    /// are the library's business.
    fn notice(&self, answer: &Result<Value, Silence>) {
        if matches!(self.connection, Connection::Node(_))
            && matches!(answer, Err(Silence::Lost(_) | Silence::Elsewhere { .. }))
        {
            self.lost.cancel();
        }
    }
}

fn all<T>(count: usize, make: impl Fn() -> T) -> Vec<T> {
    (0..count).map(|_| make()).collect()
}

/// Waits for all of them at the same time. Each wake-up polls all that are left; slices are small.
pub(super) async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    enum Part<F: Future> {
        Waiting(Pin<Box<F>>),
        Done(Option<F::Output>),
    }
    let mut parts: Vec<Part<F>> = futures.map(|future| Part::Waiting(Box::pin(future))).collect();
    poll_fn(|context| {
        let mut waiting = false;
        for part in &mut parts {
            if let Part::Waiting(future) = part {
                match future.as_mut().poll(context) {
                    Poll::Ready(output) => *part = Part::Done(Some(output)),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Done(output) => output,
            Part::Waiting(_) => None,
        })
        .collect()
}

//! Several servers with one purpose, and what stands in front of them: a balancer that takes them in turn.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::client::{Connection, exchange_within};
use super::server::{Launch, Starting};
use super::{Request, Response, Server, Setup, eventually};

/// How long a sender waits for an answer.
pub(crate) const SENDER_PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Fleet {
    // Servers end before their directories.
    places: Vec<Place>,
    setups: Vec<Setup>,
    balancer: Arc<Balancer>,
}

#[derive(Debug)]
enum Place {
    Empty,
    Starting(Starting),
    Running(Server),
}

impl Fleet {
    /// As many servers as there are set-ups, all ready.
    pub(crate) fn start(setups: Vec<Setup>) -> Self {
        let balancer = Arc::new(Balancer {
            addresses: setups.iter().map(|_| Mutex::new(None)).collect(),
            turn: AtomicUsize::new(0),
        });
        let places = setups.iter().map(|setup| Place::Starting(setup.launch())).collect();
        let mut fleet = Self {
            places,
            setups,
            balancer,
        };
        fleet.wait_until_ready();
        fleet
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn balancer(&self) -> Arc<Balancer> {
        Arc::clone(&self.balancer)
    }

    #[track_caller]
    pub(crate) fn server(&self, index: usize) -> &Server {
        match &self.places[index] {
            Place::Running(server) => server,
            Place::Empty | Place::Starting(_) => panic!("replica {index} does not run"),
        }
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Server> {
        self.places.iter().filter_map(|place| match place {
            Place::Running(server) => Some(server),
            Place::Empty | Place::Starting(_) => None,
        })
    }

    pub(crate) fn is_running(&self, index: usize) -> bool {
        matches!(self.places[index], Place::Running(_))
    }

    pub(crate) fn setup(&self, index: usize) -> &Setup {
        &self.setups[index]
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        self.balancer.set(index, None);
        self.places[index] = Place::Empty;
    }

    /// SIGTERM, and its orderly end.
    #[track_caller]
    pub(crate) fn stop(&mut self, index: usize) {
        self.balancer.set(index, None);
        if let Place::Running(server) = std::mem::replace(&mut self.places[index], Place::Empty) {
            server.stop();
        }
    }

    /// Starts it without waiting; [`Fleet::tend`] sees it come up.
    pub(crate) fn launch(&mut self, index: usize) {
        self.places[index] = Place::Starting(self.setups[index].launch());
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub(crate) fn restart(&mut self, index: usize) {
        self.launch(index);
        self.wait_until_ready();
    }

    /// What a supervisor does: servers that have come up get requests, and those that could not start try again. Gives
    /// back what the latter logged.
    pub(crate) fn tend(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        for index in 0..self.places.len() {
            let Place::Starting(starting) = &mut self.places[index] else {
                continue;
            };
            match starting.look() {
                Launch::Waiting => {}
                Launch::Listening(server) => {
                    self.balancer.set(index, Some(server.address()));
                    self.places[index] = Place::Running(server);
                }
                Launch::Ended(_, said) => {
                    failed.push(said);
                    self.launch(index);
                }
            }
        }
        failed
    }

    /// Waits until every server that was started is ready.
    #[track_caller]
    pub(crate) fn wait_until_ready(&mut self) {
        eventually("all replicas to be ready", || {
            let failed = self.tend();
            assert!(failed.is_empty(), "a replica ended: {failed:?}");
            let starting = self.places.iter().any(|place| matches!(place, Place::Starting(_)));
            (!starting && self.servers().all(Server::is_ready)).then_some(())
        });
    }

    /// The sum over all running servers.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.servers().map(|server| server.metric(name, labels)).sum()
    }

    /// Waits until the sum is this.
    #[track_caller]
    pub(crate) fn wait_for_metric(&self, name: &str, labels: &[&str], value: f64) {
        eventually(&format!("{name}{labels:?} to be {value} in all"), || {
            (self.metric(name, labels) == value).then_some(())
        });
    }
}

/// Takes the servers in turn, leaving out those that are known to be down.
#[derive(Debug)]
pub(crate) struct Balancer {
    addresses: Vec<Mutex<Option<SocketAddr>>>,
    turn: AtomicUsize,
}

impl Balancer {
    fn set(&self, index: usize, address: Option<SocketAddr>) {
        *self.addresses[index].lock().unwrap() = address;
    }

    pub(crate) fn address(&self, index: usize) -> Option<SocketAddr> {
        *self.addresses[index].lock().unwrap()
    }

    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// The next one that is up.
    pub(crate) fn next(&self) -> Option<usize> {
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        (0..self.len())
            .map(|step| (first + step) % self.len())
            .find(|index| self.address(*index).is_some())
    }

    /// One request on a connection of its own; `None` when there was no answer.
    pub(crate) fn try_send(&self, request: &Request) -> io::Result<Option<Response>> {
        let address = self
            .next()
            .and_then(|index| self.address(index))
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        exchange_within(address, request, SENDER_PATIENCE)
    }

    #[track_caller]
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.try_send(request).unwrap().expect("an answer")
    }
}

/// A sender's open connections, at most one to each server.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<usize, (SocketAddr, Connection)>);

impl Lines {
    /// Puts the request on the wire; the answer is read by [`Lines::read`].
    pub(crate) fn write(&mut self, balancer: &Balancer, index: usize, request: &Request) -> io::Result<()> {
        let address = balancer.address(index).ok_or(io::ErrorKind::ConnectionRefused)?;
        let bytes = request.bytes();
        if let Some((known, connection)) = self.0.get_mut(&index)
            && *known == address
            && connection.try_send(&bytes).is_ok()
        {
            return Ok(());
        }
        self.0.remove(&index);
        let mut connection = Connection::open_within(address, SENDER_PATIENCE)?;
        connection.try_send(&bytes)?;
        self.0.insert(index, (address, connection));
        Ok(())
    }

    /// The answer; a connection without one is given up.
    pub(crate) fn read(&mut self, index: usize) -> io::Result<Response> {
        let (_, connection) = self.0.get_mut(&index).ok_or(io::ErrorKind::NotConnected)?;
        let answer = connection
            .try_read(false)
            .and_then(|answer| answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
        if answer
            .as_ref()
            .map_or(true, |answer| answer.header("connection") == Some("close"))
        {
            self.0.remove(&index);
        }
        answer
    }
}

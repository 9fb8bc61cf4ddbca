//! A network between two programs that a test can cut, hold, slow down or trap: bytes go through this process.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::engine::Port;
use super::eventually;

/// What happens when the client's bytes contain a trap's pattern. Each trap springs once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// Neither side gets anything any more; the server never saw the pattern.
    CutBefore,
    /// The server gets it, and the client no answer.
    CutAfter,
    /// Everything is held from the pattern on, as by [`Relay::hold`].
    HoldBefore,
    /// The server gets it; everything is held from its answer on.
    HoldAfter,
    /// The server gets what came until here and then the end of the stream; its answers still come.
    HalfClose,
}

/// A port that passes on what it gets.
#[derive(Debug)]
pub(crate) struct Relay {
    port: Port,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    listening: bool,
    held: bool,
    latency: Duration,
    trap: Option<(Vec<u8>, Trap)>,
    open: Vec<Arc<Link>>,
    next: u64,
}

/// One connection, both halves.
#[derive(Debug)]
struct Link {
    number: u64,
    client: TcpStream,
    /// Once it is connected.
    server: OnceLock<TcpStream>,
    /// Answers are read and thrown away.
    muted: AtomicBool,
    cut: AtomicBool,
}

impl Link {
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        self.client.shutdown(Shutdown::Both).ok();
        if let Some(server) = self.server.get() {
            server.shutdown(Shutdown::Both).ok();
        }
    }
}

impl Relay {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let relay = Self {
            port: Port::reserve(),
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    target,
                    listening: false,
                    held: false,
                    latency: Duration::ZERO,
                    trap: None,
                    open: Vec::new(),
                    next: 0,
                }),
                changed: Condvar::new(),
            }),
        };
        relay.listen();
        relay
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Everything is as it should be again: connections are accepted and bytes pass at once.
    pub(crate) fn heal(&self) {
        {
            let mut state = self.state();
            state.held = false;
            state.latency = Duration::ZERO;
            state.trap = None;
        }
        self.shared.changed.notify_all();
        self.listen();
    }

    /// Open connections are gone; new ones are accepted.
    pub(crate) fn cut(&self) {
        for link in self.state().open.drain(..) {
            link.cut();
        }
    }

    /// Open connections are gone, and connecting is refused.
    pub(crate) fn refuse(&self) {
        if std::mem::replace(&mut self.state().listening, false) {
            // Wakes the accepting thread, which then drops the listener.
            TcpStream::connect(self.address()).ok();
            eventually("the relay's port to be closed", || {
                TcpStream::connect(self.address()).is_err().then_some(())
            });
        }
        self.cut();
    }

    /// Connections stay and are accepted, and nothing passes in either direction: a network that swallows.
    pub(crate) fn hold(&self) {
        self.state().held = true;
    }

    /// Every piece that the client sends comes so much later.
    pub(crate) fn slow(&self, latency: Duration) {
        self.state().latency = latency;
    }

    /// From now on new connections go there; open ones are gone.
    pub(crate) fn point_to(&self, target: SocketAddr) {
        self.state().target = target;
        self.cut();
    }

    /// Springs at the next bytes of a client that contain `pattern`.
    pub(crate) fn trap(&self, pattern: &str, trap: Trap) {
        self.state().trap = Some((pattern.as_bytes().to_vec(), trap));
    }

    /// Waits until the trap has sprung.
    #[track_caller]
    pub(crate) fn wait_for_trap(&self) {
        eventually("the trap to spring", || self.state().trap.is_none().then_some(()));
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.state().open.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn listen(&self) {
        if std::mem::replace(&mut self.state().listening, true) {
            return;
        }
        let listener = TcpListener::bind(self.address()).unwrap();
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if !shared.state().listening {
                    return;
                }
                let link = shared.open(client);
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    connect(&link, &shared);
                    link.cut();
                    shared.forget(&link);
                });
            }
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        {
            let mut state = self.state();
            state.listening = false;
            state.held = false;
        }
        self.shared.changed.notify_all();
        TcpStream::connect(self.address()).ok();
        self.cut();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A test that failed still has to end its threads.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while everything is held.
    fn pass(&self) -> MutexGuard<'_, State> {
        let state = self.state();
        self.changed
            .wait_while(state, |state| state.held)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, client: TcpStream) -> Arc<Link> {
        let mut state = self.state();
        let link = Arc::new(Link {
            number: state.next,
            client,
            server: OnceLock::new(),
            muted: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        });
        state.next += 1;
        state.open.push(Arc::clone(&link));
        link
    }

    fn forget(&self, link: &Link) {
        self.state().open.retain(|open| open.number != link.number);
    }
}

fn connect(link: &Arc<Link>, shared: &Arc<Shared>) {
    let target = shared.pass().target;
    let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(5)) else {
        // Nobody there: as near to a refusal as an accepted connection can be.
        socket2::SockRef::from(&link.client)
            .set_linger(Some(Duration::ZERO))
            .ok();
        return;
    };
    link.client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let server = link.server.get_or_init(|| server);
    if link.cut.load(Ordering::SeqCst) {
        return;
    }
    let answers = {
        let (link, shared) = (Arc::clone(link), Arc::clone(shared));
        std::thread::spawn(move || {
            if let Some(server) = link.server.get() {
                carry_answers(&link, server, &shared);
            }
        })
    };
    carry_requests(link, server, shared).ok();
    answers.join().ok();
}

/// From the client to the server.
fn carry_requests(link: &Link, server: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut buffer = [0; 64 << 10];
    // Enough of what came before to see a pattern that arrives in two pieces.
    let mut tail: Vec<u8> = Vec::new();
    loop {
        let read = (&link.client).read(&mut buffer).unwrap_or(0);
        if read == 0 {
            server.shutdown(Shutdown::Write)?;
            return Ok(());
        }
        let mut piece = &buffer[..read];
        let mut state = shared.pass();
        let latency = state.latency;
        if !latency.is_zero() {
            drop(state);
            std::thread::sleep(latency);
            state = shared.pass();
        }
        let seen = [&tail[..], piece].concat();
        let found = state.trap.as_ref().and_then(|(pattern, trap)| {
            let at = seen.windows(pattern.len()).position(|window| window == pattern)?;
            Some((at.saturating_sub(tail.len()), *trap))
        });
        if let Some((at, trap)) = found {
            state.trap = None;
            state.held |= trap == Trap::HoldBefore;
            drop(state);
            let before;
            (before, piece) = piece.split_at(at);
            match trap {
                Trap::CutBefore => {
                    link.cut();
                    return Ok(());
                }
                Trap::CutAfter => {
                    link.muted.store(true, Ordering::SeqCst);
                    link.client.shutdown(Shutdown::Both)?;
                }
                Trap::HoldBefore => {
                    (&*server).write_all(before)?;
                    drop(shared.pass());
                    (&*server).write_all(piece)?;
                    continue;
                }
                Trap::HoldAfter => {
                    // Held first: the answer must not slip through.
                    shared.state().held = true;
                }
                Trap::HalfClose => {
                    (&*server).write_all(before)?;
                    server.shutdown(Shutdown::Write)?;
                    return Ok(());
                }
            }
            (&*server).write_all(before)?;
        } else {
            drop(state);
        }
        (&*server).write_all(piece)?;
        tail = seen[seen.len().saturating_sub(64)..].to_vec();
    }
}

/// From the server to the client.
fn carry_answers(link: &Link, server: &TcpStream, shared: &Shared) {
    let mut buffer = [0; 64 << 10];
    loop {
        let read = (&*server).read(&mut buffer).unwrap_or(0);
        if read == 0 {
            break;
        }
        drop(shared.pass());
        if link.muted.load(Ordering::SeqCst) {
            // Until it has acted on all that it got, which is what the trap was for, and closes.
            continue;
        }
        if (&link.client).write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    link.client.shutdown(Shutdown::Write).ok();
    // The server is gone for good: a client that still writes should hear so.
    link.cut();
}

//! The sample upstream: records what it receives, byte for byte, and answers as the test says.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::wire::{self, Lines, Wire};
use super::{PATIENCE, eventually};

/// One request as it came over the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) lines: Lines,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        wire::value(&self.lines, name)
    }

    pub(crate) fn values(&self, name: &str) -> Vec<&[u8]> {
        wire::values(&self.lines, name)
    }

    pub(crate) fn event_id(&self) -> &str {
        self.header("Hooksluice-Event-Id")
            .expect("every forward carries its event id")
    }

    pub(crate) fn attempt(&self) -> u32 {
        let attempt = self
            .header("Hooksluice-Attempt")
            .expect("every forward carries its number");
        attempt.parse().unwrap()
    }
}

/// What the upstream does with a request after recording it.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// This status, no body.
    Status(u16),
    /// These bytes, whatever they are.
    Raw(Vec<u8>),
    /// These bytes, and then the connection is closed.
    Part(Vec<u8>),
    /// Another answer, later.
    After(Duration, Box<Answer>),
    /// The connection is closed without an answer.
    Close,
    /// No answer, until the upstream is dropped.
    Hang,
}

type Script = dyn Fn(&Received) -> Answer + Send + Sync;

struct Shared {
    /// Whether requests are kept for the test to look at.
    keeps: bool,
    script: Mutex<Arc<Script>>,
    received: Mutex<Vec<Received>>,
    arrived: Condvar,
    down: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

/// An HTTP/1.1 server on a free port, a thread per connection.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Upstream {
    /// Answers 200 to everything.
    pub(crate) fn start() -> Self {
        Self::scripted(|_| Answer::Status(200))
    }

    /// Answers as `script` says.
    pub(crate) fn scripted(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Self::build(true, script)
    }

    /// As [`Upstream::scripted`], for more requests than should be kept: the script is all that sees them.
    pub(crate) fn forgetful(script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Self::build(false, script)
    }

    fn build(keeps: bool, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared {
            keeps,
            script: Mutex::new(Arc::new(script)),
            received: Mutex::default(),
            arrived: Condvar::new(),
            down: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = Self { address, shared };
        upstream.listen(listener);
        upstream
    }

    fn listen(&self, listener: TcpListener) {
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if shared.down.load(Ordering::SeqCst) {
                    return;
                }
                shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_script(&self, script: impl Fn(&Received) -> Answer + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Arc::new(script);
    }

    /// From now on connecting is refused, and open connections are gone.
    pub(crate) fn stop(&self) {
        self.shared.down.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then drops the listener.
        TcpStream::connect(self.address).ok();
        self.close_connections();
        eventually("the upstream's port to be closed", || {
            TcpStream::connect(self.address).is_err().then_some(())
        });
    }

    /// After [`Upstream::stop`]: back on the same port.
    pub(crate) fn start_again(&self) {
        self.shared.down.store(false, Ordering::SeqCst);
        let listener = eventually("the upstream's port to be free", || {
            TcpListener::bind(self.address).ok()
        });
        self.listen(listener);
    }

    /// Closes what is open now and goes on listening.
    pub(crate) fn close_connections(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            stream.shutdown(std::net::Shutdown::Both).ok();
        }
    }

    /// Connections that were made to it.
    pub(crate) fn connections(&self) -> usize {
        self.shared.open.lock().unwrap().len()
    }

    /// Everything received so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.shared.received.lock().unwrap().clone()
    }

    /// The first `count` requests, once they have arrived.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Received> {
        let received = self.shared.received.lock().unwrap();
        let (received, result) = self
            .shared
            .arrived
            .wait_timeout_while(received, PATIENCE, |received| received.len() < count)
            .unwrap();
        assert!(
            !result.timed_out(),
            "{count} forwards expected, {} came",
            received.len()
        );
        received.clone()
    }

    /// The only request that arrives; a second one within the given time fails the test.
    #[track_caller]
    pub(crate) fn only(&self) -> Received {
        self.wait_for(1);
        std::thread::sleep(Duration::from_millis(100));
        let mut received = self.received();
        assert_eq!(received.len(), 1, "one forward expected: {received:?}");
        received.remove(0)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.down.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).ok();
        self.close_connections();
    }
}

/// Also for the test's own copy of the socket.
fn close(wire: &Wire) {
    wire.stream.shutdown(std::net::Shutdown::Both).ok();
}

fn serve(stream: TcpStream, shared: &Shared) {
    let mut wire = Wire::new(stream);
    // A peer that resets the connection ends it, as one that closes it does.
    while let Ok(Some(message)) = wire.read_message(false) {
        let mut words = message.first_line.split(' ');
        let received = Received {
            method: words.next().unwrap_or_default().to_owned(),
            target: words.next().unwrap_or_default().to_owned(),
            lines: message.lines,
            body: message.body,
        };
        let script = Arc::clone(&shared.script.lock().unwrap());
        if shared.keeps {
            shared.received.lock().unwrap().push(received.clone());
            shared.arrived.notify_all();
        }
        let mut answer = script(&received);
        while let Answer::After(time, then) = answer {
            std::thread::sleep(time);
            answer = *then;
        }
        let bytes = match answer {
            Answer::Status(status) => format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n\r\n").into_bytes(),
            Answer::Raw(bytes) => bytes,
            Answer::Part(bytes) => {
                // A peer that is gone has nothing to be told.
                wire.stream.write_all(&bytes).ok();
                return close(&wire);
            }
            Answer::Close | Answer::After(..) => return close(&wire),
            Answer::Hang => {
                // Ends when the peer or the test closes the socket.
                wire.read_message(false).ok();
                return;
            }
        };
        if wire.stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

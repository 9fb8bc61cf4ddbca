//! [`Notify`]: what the service manager is told about this process, as sd_notify(3) of systemd describes it. Without
//! `$NOTIFY_SOCKET` nothing is told to anybody.
//!
//! The watchdog is fed while a new process would be no better than this one: that is also while the database is away or
//! the disk is full. A process that were killed for those would lose its connections and its place, and its successor would
//! wait for the same database. It starves when the runtime runs no tasks any more, which needs no code, or when
//! [`Notify::feed`]'s `alive` says that only a new process can help.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as Blocking};
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::net::UnixDatagram;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// Tells the service manager. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Notify {
    socket: Option<Arc<UnixDatagram>>,
    watchdog: Option<Duration>,
}

impl Notify {
    /// As `$NOTIFY_SOCKET`, `$WATCHDOG_USEC` and `$WATCHDOG_PID` say. Must be called inside the runtime.
    pub fn from_environment() -> Self {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        match connect(&name) {
            Ok(socket) => Self {
                socket: Some(Arc::new(socket)),
                watchdog: sd_notify::watchdog_enabled().filter(|every| !every.is_zero()),
            },
            Err(error) => {
                warn!(socket = ?name, %error, "the service manager cannot be told");
                Self::default()
            }
        }
    }

    /// Events are taken from now on; or a reload is over, whether it changed anything or not.
    pub async fn ready(&self) {
        self.tell(&[NotifyState::Ready]).await;
    }

    /// A reload has begun. [`Notify::ready`] must follow.
    pub async fn reloading(&self) {
        // systemd 253 and later, with `Type=notify-reload`, wants to know which of two reloads this is.
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.tell(&[NotifyState::Reloading, now]).await,
            Err(error) => warn!(%error, "the service manager is not told of the reload"),
        }
    }

    /// The orderly end has begun.
    pub async fn stopping(&self) {
        self.tell(&[NotifyState::Stopping]).await;
    }

    /// Feeds the watchdog twice in each of its periods while `alive`, until `stop`. Ends at once without a watchdog.
    pub async fn feed(self, alive: impl Fn() -> bool + Send + Sync + 'static, stop: CancellationToken) {
        let Some(period) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(period / 2);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_alive = true;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let is_alive = alive();
            match (was_alive, is_alive) {
                (true, false) => error!("only a new process can help: the watchdog is not fed any more"),
                (false, true) => info!("the watchdog is fed again"),
                _ => {}
            }
            was_alive = is_alive;
            if is_alive {
                self.tell(&[NotifyState::Watchdog]).await;
            }
        }
    }

    async fn tell(&self, states: &[NotifyState<'_>]) {
        let Some(socket) = &self.socket else { return };
        let lines: Vec<String> = states.iter().map(NotifyState::to_string).collect();
        if let Err(error) = socket.send(lines.join("\n").as_bytes()).await {
            warn!(state = lines.join(" "), %error, "the service manager could not be told");
        }
    }
}

/// A path, or with `@` in front a name of the abstract namespace (unix(7)).
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            let message = "neither a path nor a name of the abstract namespace";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    };
    let socket = Blocking::unbound()?;
    socket.connect_addr(&address)?;
    // The manager's queue may be full: waiting for it must not hold up a thread of the runtime.
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram as Manager;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio_util::task::TaskTracker;

    use super::*;

    /// A manager that listens, and a notifier that speaks to it.
    fn manager(watchdog: Option<Duration>) -> (Manager, Notify, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = Manager::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let socket = Some(Arc::new(connect(path.as_os_str()).unwrap()));
        (manager, Notify { socket, watchdog }, directory)
    }

    fn heard(manager: &Manager) -> Option<String> {
        let mut bytes = [0; 200];
        let length = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_state_is_one_datagram() {
        let (manager, notify, _directory) = manager(None);
        notify.ready().await;
        assert_eq!(heard(&manager).unwrap(), "READY=1");
        notify.reloading().await;
        let said = heard(&manager).unwrap();
        let since_boot: u64 = said
            .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
            .unwrap()
            .parse()
            .unwrap();
        assert!(since_boot > 0);
        notify.stopping().await;
        assert_eq!(heard(&manager).unwrap(), "STOPPING=1");
        assert_eq!(heard(&manager), None);
    }

    #[tokio::test]
    async fn a_socket_of_the_abstract_namespace_is_reached() {
        let name = format!("hooksluice-test-{}", uuid::Uuid::now_v7());
        let manager = Manager::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let socket = connect(OsStr::new(&format!("@{name}"))).unwrap();
        let notify = Notify {
            socket: Some(Arc::new(socket)),
            watchdog: None,
        };
        notify.ready().await;
        assert_eq!(heard(&manager).unwrap(), "READY=1");
        assert!(connect(OsStr::new("vsock:2:1234")).is_err());
    }

    #[tokio::test]
    async fn the_watchdog_is_fed_at_each_look_and_only_while_alive() {
        let (manager, notify, _directory) = manager(Some(Duration::from_millis(2)));
        let (looks, alive) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(true)));
        let (counted, asked) = (Arc::clone(&looks), Arc::clone(&alive));
        let look = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            asked.load(Ordering::SeqCst)
        };
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(notify.feed(look, stop.clone()));
        // The second look that begins from now on finds all that came before it done.
        let two_looks = async || {
            let before = looks.load(Ordering::SeqCst);
            while looks.load(Ordering::SeqCst) < before + 2 {
                tokio::task::yield_now().await;
            }
        };
        two_looks().await;
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1"));
        alive.store(false, Ordering::SeqCst);
        two_looks().await;
        while heard(&manager).is_some() {}
        two_looks().await;
        assert_eq!(heard(&manager), None);
        alive.store(true, Ordering::SeqCst);
        two_looks().await;
        assert_eq!(heard(&manager).as_deref(), Some("WATCHDOG=1"));
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }

    #[tokio::test]
    async fn without_a_manager_nothing_is_told_and_nothing_waits() {
        let notify = Notify::default();
        notify.ready().await;
        notify.reloading().await;
        notify.feed(|| true, CancellationToken::new()).await;
    }
}

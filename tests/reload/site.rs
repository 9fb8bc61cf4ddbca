//! A running server whose configuration can be rewritten.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::sign::{hex, sha256};
use crate::harness::{Request, Server, Setup, Upstream, eventually, server};

/// What a refused configuration makes the log say.
const REFUSED: [&str; 2] = ["configuration refused", "nothing was changed"];
/// Nothing looks at files by itself.
pub(crate) const UNWATCHED: &str = "[server]\nwatch = false\n";

/// Lets it be refused.
pub(crate) fn refusing(setup: Setup) -> Setup {
    REFUSED.into_iter().fold(setup, Setup::allow_log)
}

pub(crate) struct Site {
    // Ends before its directory.
    pub(crate) server: Server,
    pub(crate) setup: Setup,
    pub(crate) upstream: Upstream,
}

impl Site {
    /// In front of an upstream that answers 200, as `setup` says.
    pub(crate) fn open(setup: impl FnOnce(Setup) -> Setup) -> Self {
        Self::before(Upstream::start(), setup)
    }

    pub(crate) fn before(upstream: Upstream, setup: impl FnOnce(Setup) -> Setup) -> Self {
        let setup = setup(Setup::new(&upstream));
        Self {
            server: setup.start(),
            setup,
            upstream,
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.setup.directory().join("hooksluice.toml")
    }

    pub(crate) fn text(&self) -> String {
        fs::read_to_string(self.config()).unwrap()
    }

    pub(crate) fn write(&self, text: &str) {
        fs::write(self.config(), text).unwrap();
    }

    /// Writes this in place of `old`, which must be there.
    #[track_caller]
    pub(crate) fn edit(&self, old: &str, new: &str) {
        let text = self.text();
        assert!(text.contains(old), "{old:?} is not in\n{text}");
        self.write(&text.replace(old, new));
    }

    pub(crate) fn append(&self, tables: &str) {
        self.write(&format!("{}\n{tables}\n", self.text()));
    }

    /// `hooksluice reload` with further arguments: its exit code, and what it prints.
    pub(crate) fn reload(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = server::program();
        let admin = format!("http://{}", self.server.admin());
        let output = command
            .args(["reload", "--admin", &admin])
            .args(arguments)
            .output()
            .unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), printed)
    }

    /// As [`Site::reload`]; must succeed.
    #[track_caller]
    pub(crate) fn reloaded(&self) -> String {
        let (code, printed) = self.reload(&[]);
        assert_eq!(code, 0, "{printed}");
        printed
    }

    /// SIGHUP, and waits until a reload has ended so.
    #[track_caller]
    pub(crate) fn hang_up(&self, outcome: &str) {
        let label = format!("outcome=\"{outcome}\"");
        let count = || self.server.metric("hooksluice_config_reloads_total", &[&label]);
        let before = count();
        let pid = Pid::from_raw(i32::try_from(self.server.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::HUP).unwrap();
        eventually(&format!("a reload to be {outcome}"), || {
            (count() > before).then_some(())
        });
    }
}

impl std::ops::Deref for Site {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

/// The plain `hmac` preset, signed with this secret.
pub(crate) fn signed(secret: &str, target: &str, id: &str) -> Request {
    let body = format!("{{\"id\":\"{id}\"}}").into_bytes();
    let signature = format!("sha256={}", hex(&sha256(secret.as_bytes(), &[&body])));
    Request::post(target, body)
        .header("X-Delivery-Id", id)
        .header("X-Signature", signature)
}

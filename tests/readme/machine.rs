//! A machine of its own for a scene: its own network, so that every port of the README is free, its own processes, which
//! end with it, and an empty directory. One shell runs all blocks of the scene, so that what is exported stays so.
//!
//! What a reader leaves running in a terminal of its own, a server or the sample app, is started in the background, and
//! the scene goes on when it listens. A second server in one scene replaces the first, as Ctrl-C would.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use tempfile::TempDir;

use crate::blocks::Block;
use crate::harness::eventually;

/// For one block. Generous, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// Behind each block the shell says that it is done.
const DONE: &str = "@@ done @@";

pub(crate) struct Machine {
    directory: TempDir,
    title: String,
    shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// What the last block printed.
    printed: String,
}

impl Machine {
    pub(crate) fn start(title: &str) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_hooksluice"));
        let path = std::env::var("PATH").unwrap();
        let mut shell = Command::new("unshare")
            .args([
                "--map-root-user",
                "--net",
                "--mount-proc",
                "--pid",
                "--fork",
                "--kill-child=KILL",
            ])
            .args(["bash", "--noprofile", "--norc"])
            .current_dir(directory.path())
            .env_clear()
            .env("HOME", directory.path())
            .env("PATH", format!("{}:{path}", program.parent().unwrap().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = shell.stdin.take().unwrap();
        let lines = BufReader::new(shell.stdout.take().unwrap()).lines();
        let (sender, output) = sync_channel(1024);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut machine = Self {
            directory,
            title: title.to_owned(),
            shell,
            input,
            output,
            printed: String::new(),
        };
        machine.say(PROLOGUE, 0);
        machine
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs a block; a command of it that fails fails the test.
    pub(crate) fn run(&mut self, text: &str, line_number: usize) {
        let mut script = String::new();
        for line in commands(text) {
            match stays(&line) {
                Some(Stays::Server(command)) => {
                    writeln!(script, "replace_server; {command} >server.log 2>&1 & await_server $!").unwrap();
                }
                Some(Stays::App(name, command)) => {
                    writeln!(script, "{command} >{name}.log 2>&1 & await_port 3000").unwrap();
                }
                None => writeln!(script, "{line}").unwrap(),
            }
        }
        self.say(&script, line_number);
    }

    /// The block before printed this: its lines in this order; `…` stands for anything, alone on a line for any lines.
    /// `text app.py` is what that program prints, in time.
    pub(crate) fn expect(&self, block: &Block) {
        let place = format!("README.md:{} ({})", block.line, self.title);
        match block.info.split_once(' ') {
            None => {
                let missing = missing(&block.text, &self.printed);
                assert!(missing.is_none(), "{place}: {missing:?} is not in\n{}", self.printed);
            }
            Some((_, program)) => {
                let log = self.directory().join(format!("{program}.log"));
                let read = || fs::read_to_string(&log).unwrap_or_default();
                eventually(&format!("{place}: the output of {program}"), || {
                    missing(&block.text, &read()).is_none().then_some(())
                });
            }
        }
    }

    fn say(&mut self, script: &str, line: usize) {
        let file = self.script(script);
        writeln!(self.input, "source {} 2>&1; echo '{DONE}'", file.display()).unwrap();
        self.printed.clear();
        loop {
            match self.output.recv_timeout(PATIENCE) {
                Ok(line) if line == DONE => return,
                Ok(line) => writeln!(self.printed, "{line}").unwrap(),
                Err(why) => {
                    let why = match why {
                        RecvTimeoutError::Timeout => "did not end",
                        RecvTimeoutError::Disconnected => "failed",
                    };
                    let logs = self.logs();
                    panic!(
                        "README.md:{line} ({}) {why}:\n{script}\n--\n{}\n{logs}",
                        self.title, self.printed
                    );
                }
            }
        }
    }

    /// The shell reads its input itself, so that a block comes from a file.
    fn script(&self, script: &str) -> PathBuf {
        let path = self.directory().join(".block.sh");
        fs::write(&path, script).unwrap();
        path
    }

    fn logs(&self) -> String {
        let mut out = String::new();
        for entry in fs::read_dir(self.directory()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "log") {
                let text = fs::read_to_string(&path).unwrap_or_default();
                writeln!(out, "-- {}\n{text}", path.display()).unwrap();
            }
        }
        out
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Its processes are in a name space that ends with it.
        self.shell.kill().ok();
        self.shell.wait().ok();
    }
}

/// The loopback of a new network is down. A command that fails ends the shell, and that is noticed.
const PROLOGUE: &str = r#"
set -eEuo pipefail
ip link set lo up
server=
replace_server() {
  if [[ -n $server ]] && kill -0 "$server" 2>/dev/null; then
    kill -TERM "$server"
    wait "$server" || true
  fi
}
await_server() {
  server=$1
  until hooksluice health >/dev/null 2>&1; do
    if ! kill -0 "$server" 2>/dev/null; then
      echo 'the server ended:'
      cat server.log
      exit 1
    fi
    sleep 0.05
  done
}
await_port() {
  until (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; do sleep 0.05; done
}
"#;

enum Stays {
    Server(String),
    /// With the name of its file.
    App(String, String),
}

/// What runs until somebody stops it, without what is said about it.
fn stays(line: &str) -> Option<Stays> {
    let command = line.split("  #").next()?.trim();
    if command.starts_with("hooksluice serve") {
        return Some(Stays::Server(command.to_owned()));
    }
    let name = command.strip_prefix("python3 ")?.split(' ').next()?;
    Some(Stays::App(name.to_owned(), command.to_owned()))
}

/// The lines of a block, continued ones joined.
pub(crate) fn commands(text: &str) -> Vec<String> {
    text.replace("\\\n", " ")
        .lines()
        .map(|line| line.trim_start().to_owned())
        .collect()
}

/// The first line of `wanted` that `printed` does not have behind the lines before it.
fn missing<'w>(wanted: &'w str, printed: &str) -> Option<&'w str> {
    let mut lines = printed.lines();
    let wanted = wanted
        .lines()
        .map(str::trim_end)
        .filter(|line| !matches!(*line, "" | "…"));
    wanted
        .into_iter()
        .find(|wanted| !lines.any(|line| fits(wanted, line.trim_end())))
}

/// Whether `line` is `wanted`, in which `…` stands for anything.
fn fits(wanted: &str, line: &str) -> bool {
    let mut parts = wanted.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn an_expected_line_stands_for_what_it_leaves_out() {
    assert!(fits("200 OK", "200 OK") && !fits("200 OK", "200 OK "));
    assert!(fits("id … app …", "id 17 app x") && !fits("id … app …", "id 17 ap"));
    assert!(fits("…", "") && fits("a…b", "a-b") && !fits("a…b", "a-c"));
    assert_eq!(missing("a\n…\nc\n", "x\na\nb\nc\n"), None);
    assert_eq!(missing("c\na\n", "a\nb\nc\n"), Some("a"));
}

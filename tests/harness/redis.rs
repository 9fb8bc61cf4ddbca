//! A Redis server of a test's own: it can be killed, stopped, emptied, restarted, followed and promoted.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use super::engine::{Engine, Port, TEMPORARY, User, leashed};
use super::eventually;

/// Of all servers, so that no log may show it.
pub(crate) const PASSWORD: &str = "redis-test-password-0123456789";

/// Where all keys of the product are.
pub(crate) const NAMESPACE: &str = "hooksluice:*";

#[derive(Debug)]
pub(crate) struct Redis {
    engine: Option<Engine>,
    port: Port,
    directory: TempDir,
    lines: Vec<String>,
}

impl Redis {
    /// Keeps nothing over a restart.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Keeps every answered write over a restart.
    pub(crate) fn durable() -> Self {
        Self::with(&["appendonly yes", "appendfsync always"])
    }

    /// With further lines of `redis.conf`.
    pub(crate) fn with(lines: &[&str]) -> Self {
        let mut redis = Self {
            engine: None,
            port: Port::reserve(),
            directory: tempfile::tempdir_in(TEMPORARY).unwrap(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
        };
        redis.restart();
        redis
    }

    /// A replica of this one, once it has all of its data.
    pub(crate) fn replica(&self) -> Self {
        let replica = Self::start();
        replica.follow(self);
        replica
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.engine.as_ref().unwrap().pid()
    }

    pub(crate) fn url(&self) -> String {
        url(self.address())
    }

    /// Starts it (again, if it runs), on the same port.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let config = self.directory.path().join("redis.conf");
        let text = format!(
            "bind 127.0.0.1\nport {}\ndir \"{}\"\nsave \"\"\nlogfile \"{}\"\nrepl-diskless-sync-delay 0\n\
             requirepass {PASSWORD}\nmasterauth {PASSWORD}\n{}\n",
            self.port.number(),
            self.directory.path().display(),
            self.directory.path().join("log").display(),
            self.lines.join("\n"),
        );
        std::fs::write(&config, text).unwrap();
        let mut command = leashed("redis-server", "KILL", User::Own);
        command.arg(config);
        self.engine = Some(Engine::start(command));
        eventually("Redis to answer", || {
            if let Some(status) = self.engine.as_mut().unwrap().ended() {
                panic!("Redis ended with {status}:\n{}", self.log());
            }
            matches!(try_command(self.address(), &["PING"]), Ok(Reply::Simple(_))).then_some(())
        });
    }

    pub(crate) fn kill(&mut self) {
        self.engine = None;
    }

    /// SIGSTOP: connections are taken and nothing is answered.
    pub(crate) fn freeze(&self) {
        self.engine.as_ref().unwrap().signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.engine.as_ref().unwrap().signal(Signal::CONT);
    }

    pub(crate) fn flush(&self) {
        assert_eq!(self.command(&["FLUSHALL"]), Reply::Simple("OK".to_owned()));
    }

    /// Becomes a replica of `other`, and has its data when this returns.
    pub(crate) fn follow(&self, other: &Self) {
        let port = other.port.number().to_string();
        self.command(&["REPLICAOF", "127.0.0.1", &port]);
        eventually("the replica to be in step", || {
            let info = self.command(&["INFO", "replication"]).text();
            info.contains("master_link_status:up").then_some(())
        });
    }

    /// No longer a replica.
    pub(crate) fn promote(&self) {
        self.command(&["REPLICAOF", "NO", "ONE"]);
    }

    #[track_caller]
    pub(crate) fn command(&self, words: &[&str]) -> Reply {
        try_command(self.address(), words).unwrap()
    }

    /// The product's keys and their values, of all namespaces.
    pub(crate) fn keys(&self) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for key in self.names() {
            // It may have expired in between.
            if let Reply::Bulk(Some(value)) = self.command(&["GET", &key]) {
                found.insert(key, String::from_utf8(value).unwrap());
            }
        }
        found
    }

    /// The names of the product's keys, of all namespaces.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = "0".to_owned();
        loop {
            let Reply::Array(parts) = self.command(&["SCAN", &cursor, "MATCH", NAMESPACE, "COUNT", "1000"]) else {
                panic!("SCAN answers an array");
            };
            let [next, Reply::Array(page)] = &parts[..] else {
                panic!("SCAN answers a cursor and a page: {parts:?}");
            };
            names.extend(page.iter().map(Reply::text));
            cursor = next.text();
            if cursor == "0" {
                return names;
            }
        }
    }

    /// DD-06: every key of the product goes by itself one day.
    #[track_caller]
    pub(crate) fn assert_all_expire(&self) {
        for key in self.names() {
            // -2: gone meanwhile; -1: for ever.
            let Reply::Integer(left) = self.command(&["PTTL", &key]) else {
                panic!("PTTL answers a number");
            };
            assert!(left != -1, "{key} would stay for ever");
        }
    }

    /// Sees every command from now on.
    pub(crate) fn monitor(&self) -> Monitor {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        stream
            .write_all(format!("AUTH {PASSWORD}\r\nMONITOR\r\n").as_bytes())
            .unwrap();
        let mut reader = BufReader::new(stream);
        for _ in 0..2 {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            assert_eq!(line, "+OK\r\n");
        }
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in reader.lines().map_while(Result::ok) {
                seen.lock().unwrap().push(line);
            }
        });
        Monitor(lines)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// What `MONITOR` shows.
#[derive(Debug)]
pub(crate) struct Monitor(Arc<Mutex<Vec<String>>>);

impl Monitor {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

pub(crate) fn url(address: SocketAddr) -> String {
    format!("redis://:{PASSWORD}@{address}/0")
}

/// A Sentinel that watches one server by the name `sluice` and decides alone.
#[derive(Debug)]
pub(crate) struct Sentinel {
    _engine: Engine,
    port: Port,
    _directory: TempDir,
}

impl Sentinel {
    pub(crate) const NAME: &str = "sluice";

    /// Once it knows `redis` and its replicas.
    pub(crate) fn watching(redis: &Redis, replicas: usize) -> Self {
        let port = Port::reserve();
        let directory = tempfile::tempdir_in(TEMPORARY).unwrap();
        let config = directory.path().join("sentinel.conf");
        let name = Self::NAME;
        let text = format!(
            "bind 127.0.0.1\nport {}\ndir \"{}\"\nsentinel monitor {name} 127.0.0.1 {} 1\n\
             sentinel auth-pass {name} {PASSWORD}\nsentinel down-after-milliseconds {name} 500\nsentinel failover-timeout {name} 3000\n",
            port.number(),
            directory.path().display(),
            redis.port.number(),
        );
        std::fs::write(&config, text).unwrap();
        let mut command = leashed("redis-server", "KILL", User::Own);
        command
            .arg(config)
            .arg("--sentinel")
            .stdout(std::process::Stdio::null());
        let engine = Engine::start(command);
        eventually("Sentinel to know the replicas", || {
            let Ok(Reply::Array(known)) = try_commands(port.address(), &[&["SENTINEL", "REPLICAS", name]]) else {
                return None;
            };
            (known.len() >= replicas).then_some(())
        });
        Self {
            _engine: engine,
            port,
            _directory: directory,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Which server it calls the primary.
    pub(crate) fn primary(&self) -> SocketAddr {
        let words: [&str; 3] = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME];
        let Ok(Reply::Array(parts)) = try_commands(self.address(), &[&words]) else {
            panic!("Sentinel names a primary");
        };
        format!("{}:{}", parts[0].text(), parts[1].text()).parse().unwrap()
    }
}

/// What Redis answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

impl Reply {
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Simple(text) => text.clone(),
            Self::Bulk(Some(bytes)) => String::from_utf8(bytes.clone()).unwrap(),
            other => panic!("not a text: {other:?}"),
        }
    }
}

/// One command on a connection of its own, with the password.
pub(crate) fn try_command(address: SocketAddr, words: &[&str]) -> io::Result<Reply> {
    try_commands(address, &[&["AUTH", PASSWORD], words])
}

/// Commands at once; the last one's answer.
fn try_commands(address: SocketAddr, commands: &[&[&str]]) -> io::Result<Reply> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut bytes = String::new();
    for words in commands {
        bytes.push_str(&format!("*{}\r\n", words.len()));
        for word in *words {
            bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
    }
    stream.write_all(bytes.as_bytes())?;
    let mut reader = BufReader::new(stream);
    for _ in 1..commands.len() {
        read_reply(&mut reader)?;
    }
    read_reply(&mut reader)
}

fn read_reply(from: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    let line = line.trim_end();
    let Some((kind, rest)) = line.split_at_checked(1) else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let number = || rest.parse::<i64>().map_err(io::Error::other);
    Ok(match kind {
        "+" => Reply::Simple(rest.to_owned()),
        "-" => Reply::Error(rest.to_owned()),
        ":" => Reply::Integer(number()?),
        "$" => match usize::try_from(number()?) {
            Ok(length) => {
                let mut bytes = vec![0; length + 2];
                from.read_exact(&mut bytes)?;
                bytes.truncate(length);
                Reply::Bulk(Some(bytes))
            }
            Err(_) => Reply::Bulk(None),
        },
        "*" => {
            let length = number()?.max(0);
            Reply::Array((0..length).map(|_| read_reply(from)).collect::<io::Result<_>>()?)
        }
        _ => return Err(io::Error::other(format!("not a reply: {line}"))),
    })
}

//! P1 seen from the kernel: between reading a request and writing its 200, the store's log is synced.

use std::collections::HashMap;
use std::process::Command;

use crate::harness::sign;
use crate::harness::{Request, Server, Setup, Upstream};

/// A system call that has returned, as `strace -f -y` shows it.
struct Call {
    name: String,
    /// `FD<path or socket>, …) = RESULT`
    rest: String,
}

impl Call {
    /// The descriptor's number.
    fn descriptor(&self) -> &str {
        self.rest.split('<').next().unwrap_or_default()
    }

    fn reads(&self) -> bool {
        self.name.starts_with("read") || self.name.starts_with("recv")
    }

    fn writes(&self) -> bool {
        self.name.starts_with("write") || self.name.starts_with("send")
    }

    fn syncs_the_log(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync") && self.rest.contains("-wal")
    }
}

/// The calls in the order in which they returned. A write is listed where it began, since its bytes may have been
/// sent at once.
fn calls(trace: &str) -> Vec<Call> {
    let mut unfinished: HashMap<&str, &str> = HashMap::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((pid, call)) = line.split_once(char::is_whitespace) else {
            continue;
        };
        let call = call.trim_start();
        if let Some(resumed) = call.strip_prefix("<... ") {
            let (name, result) = resumed.split_once(" resumed>").unwrap_or((resumed, ""));
            let begun = unfinished.remove(pid).unwrap_or_default();
            let call = Call {
                name: name.to_owned(),
                rest: format!("{begun}{result}"),
            };
            if !call.writes() {
                calls.push(call);
            }
            continue;
        }
        let Some((name, rest)) = call.split_once('(') else {
            continue;
        };
        let begun = rest.strip_suffix(" <unfinished ...>");
        if let Some(begun) = begun {
            unfinished.insert(pid, begun);
        }
        let call = Call {
            name: name.to_owned(),
            rest: rest.to_owned(),
        };
        if begun.is_none() || call.writes() {
            calls.push(call);
        }
    }
    calls
}

// ST-03, ST-04
#[test]
fn the_log_is_synced_between_reading_a_request_and_answering_it() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).plain();
    let count = 20;
    let calls = traced(&setup, |server| {
        let mut connection = server.connect();
        for number in 0..count {
            connection.send(&sign::plain("/hooks/plain", &format!("sync-{number}"), b"{}").bytes());
            assert_eq!(connection.read().status, 200);
        }
        upstream.wait_for(count);
    });
    for number in 0..count {
        let id = format!("X-Delivery-Id: sync-{number}\\r");
        let read = position(&calls, 0, &format!("request {number}"), |call| {
            call.reads() && call.rest.contains(&id)
        });
        let connection = calls[read].descriptor();
        let answered = position(&calls, read, &format!("the answer to request {number}"), |call| {
            call.writes() && call.descriptor() == connection && call.rest.contains("HTTP/1.1 200 OK")
        });
        let synced = calls[read..answered].iter().any(Call::syncs_the_log);
        assert!(synced, "request {number} was answered before its log was synced");
    }
}

// IK-16
#[test]
fn a_first_call_with_a_key_is_synced_before_it_goes_on_and_before_it_is_answered_and_not_otherwise() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream)
        .plain()
        .table_after("[routes.jobs]\npath = \"/jobs\"\nupstream = \"app\"\nidempotency = { scope = \"public\" }\n");
    let count = 10;
    let calls = traced(&setup, |server| {
        let mut connection = server.connect();
        for number in 0..count {
            let request = Request::post("/jobs", "{}").header("Idempotency-Key", format!("sync-{number}"));
            connection.send(&request.bytes());
            assert_eq!(connection.read().status, 200);
        }
    });
    // The very first makes its route known to the store, for good.
    for number in 1..count {
        let key = format!("Idempotency-Key: sync-{number}\\r");
        let read = position(&calls, 0, &format!("call {number}"), |call| {
            call.reads() && call.rest.contains(&key)
        });
        let client = calls[read].descriptor();
        let forwarded = position(&calls, read, &format!("the forward of call {number}"), |call| {
            call.writes() && call.rest.contains(&format!("idempotency-key: sync-{number}\\r"))
        });
        let answered = position(&calls, forwarded, &format!("the answer to call {number}"), |call| {
            call.writes() && call.descriptor() == client && call.rest.contains("HTTP/1.1 200 OK")
        });
        let syncs = |from, to| calls[from..to].iter().filter(|call| call.syncs_the_log()).count();
        assert_eq!(
            (syncs(read, forwarded), syncs(forwarded, answered)),
            (1, 1),
            "of call {number}, before it went on and before it was answered"
        );
    }
}

/// A secret that arrives in band: the provider takes the answer for "it is kept".
#[test]
fn a_secret_is_synced_with_its_name_before_its_provider_is_answered() {
    let upstream = Upstream::start();
    let setup = Setup::new(&upstream).allow_log("has no secret yet");
    let directory = setup.directory().join("handed-over");
    std::fs::create_dir(&directory).unwrap();
    let setup = setup.table_after(&format!(
        "[sources.own]\npath = \"/hooks/own\"\nprovider = \"asana\"\nupstreams = [\"app\"]\nlearn = \"once\"\n\
         secrets = [{{ directory = \"{}\" }}]",
        directory.display()
    ));
    let calls = traced(&setup, |server| {
        assert_eq!(server.admin_post("/api/v1/sources/own/learn", "{}").status, 200);
        let handshake = Request::post("/hooks/own", "{}").header("X-Hook-Secret", "handed-over-0123456789");
        assert_eq!(server.send(&handshake).status, 200);
    });
    let read = position(&calls, 0, "the hand-shake", |call| {
        call.reads() && call.rest.contains("X-Hook-Secret: handed-over-0123456789")
    });
    let client = calls[read].descriptor();
    let content = position(&calls, read, "the sync of the file", |call| {
        call.name == "fsync" && call.rest.contains("/handed-over/.learned-")
    });
    let name = position(&calls, content, "the sync of the directory", |call| {
        call.name == "fsync" && call.rest.contains("/handed-over>")
    });
    position(&calls, name, "the answer", |call| {
        call.writes() && call.descriptor() == client && call.rest.contains("HTTP/1.1 200 OK")
    });
    let early = calls[read..name]
        .iter()
        .any(|call| call.writes() && call.descriptor() == client);
    assert!(!early, "it was answered before");
}

/// What the server's threads did while `act` had it.
fn traced(setup: &Setup, act: impl FnOnce(&Server)) -> Vec<Call> {
    let trace = setup.directory().join("trace");
    let server_command = setup.command();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-s", "1024", "-e"])
        .arg("trace=read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,fdatasync,fsync")
        .arg("-o")
        .arg(&trace)
        .arg(server_command.get_program())
        .args(server_command.get_args())
        .env_clear()
        .envs(
            server_command
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let server = setup.start_command(command);
    act(&server);
    // strace is the child that is killed on drop; the server itself must be told.
    server.stop_traced();
    calls(&std::fs::read_to_string(trace).unwrap())
}

/// The first such call from there on.
#[track_caller]
fn position(calls: &[Call], from: usize, what: &str, is_it: impl Fn(&Call) -> bool) -> usize {
    let found = calls[from..].iter().position(is_it);
    from + found.unwrap_or_else(|| panic!("{what} is not in the trace"))
}

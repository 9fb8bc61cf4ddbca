//! P1 seen from the kernel: between reading a request and writing its 200, the store's log is synced.

use std::collections::HashMap;
use std::process::Command;

use crate::harness::sign;
use crate::harness::{Setup, Upstream};

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
    let trace = setup.directory().join("trace");
    let server_command = setup.command();
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-s", "512", "-e"])
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
    let count = 20;
    let mut connection = server.connect();
    for number in 0..count {
        connection.send(&sign::plain("/hooks/plain", &format!("sync-{number}"), b"{}").bytes());
        assert_eq!(connection.read().status, 200);
    }
    upstream.wait_for(count);
    // strace is the child that is killed on drop; the server itself must be told.
    server.stop_traced();

    let trace = std::fs::read_to_string(trace).unwrap();
    let calls = calls(&trace);
    for number in 0..count {
        let id = format!("X-Delivery-Id: sync-{number}\\r");
        let read = calls.iter().position(|call| call.reads() && call.rest.contains(&id));
        let read = read.unwrap_or_else(|| panic!("request {number} is not in the trace:\n{trace}"));
        let connection = calls[read].descriptor();
        let answered = calls[read..]
            .iter()
            .position(|call| call.writes() && call.descriptor() == connection && call.rest.contains("HTTP/1.1 200 OK"));
        let answered = read + answered.unwrap_or_else(|| panic!("no answer to request {number}:\n{trace}"));
        let synced = calls[read..answered]
            .iter()
            .any(|call| matches!(call.name.as_str(), "fdatasync" | "fsync") && call.rest.contains("-wal"));
        assert!(
            synced,
            "request {number} was answered before its log was synced:\n{trace}"
        );
    }
}

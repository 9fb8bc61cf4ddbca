"""The systemd unit: read, judged, and its system calls compared with what the server makes."""

import os
import re
import tempfile
from pathlib import Path

from tools import DEPLOY, HOOKSLUICE, SCRATCH, changed, check, eventually, free_port, get, ran, run, seconds, server, shutdown_seconds

UNIT = DEPLOY / "systemd" / "hooksluice.service"


def directives(path):
    """Every line of the unit; a list each, since some may stand several times."""
    found = {}
    for line in Path(path).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def here(path):
    """The unit as it can be judged on a machine where hooksluice is not installed."""
    text = Path(path).read_text()
    assert text.count("/usr/bin/hooksluice") >= 1
    copy = Path(tempfile.mkdtemp(dir=SCRATCH)) / "hooksluice.service"
    copy.write_text(text.replace("/usr/bin/hooksluice", str(HOOKSLUICE)))
    return copy


def exposure(path):
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", path, quiet=True)
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", said).group(1))


@check
def verify():
    """systemd-analyze verify has nothing to say, the manual page included"""
    pages = Path(tempfile.mkdtemp(dir=SCRATCH))
    run(HOOKSLUICE, "man", pages / "man1")
    environment = {"MANPATH": str(pages), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    done = ran("systemd-analyze", "verify", "--man=yes", here(UNIT), env=environment)
    assert done.returncode == 0 and done.stdout + done.stderr == "", "it is not clean"
    wrong = here(changed(UNIT, "ProtectClock=yes", "ProtectClocks=yes"))
    assert "Unknown key 'ProtectClocks'" in ran("systemd-analyze", "verify", wrong, quiet=True).stderr
    print(Path("/proc/1/comm").read_text().strip(), "is process 1 here: the unit is judged, and played below, not run")


@check
def security():
    """systemd-analyze security gives an exposure under 2.5"""
    score = exposure(here(UNIT))
    print("exposure", score)
    assert score < 2.5
    bare = here(changed(UNIT, "SystemCallFilter=@system-service", "SystemCallFilter=").parent / UNIT.name)
    text = "\n".join(line for line in bare.read_text().splitlines() if not re.match(r"(Protect|Private|Restrict|Cap|System)", line))
    bare.write_text(text)
    assert exposure(bare) >= 2.5


@check
def times():
    """the unit waits for readiness, and for longer than the server takes to end"""
    unit = directives(UNIT)
    assert unit["Type"] == ["notify"] and seconds(unit["WatchdogSec"][0]) >= 10
    assert seconds(unit["TimeoutStopSec"][0]) >= shutdown_seconds("") + 10
    # A start waits half a minute for a database, and reads back what a crash left behind.
    assert seconds(unit["TimeoutStartSec"][0]) >= 120
    assert unit["Restart"] == ["on-failure"] and unit["StartLimitIntervalSec"] == ["0"]
    # Two for each connection (a route's goes on to an upstream), and the store's.
    assert int(unit["LimitNOFILE"][0]) >= 2 * 4096 + 100
    assert unit["StateDirectory"] == ["hooksluice"] and unit["StateDirectoryMode"] == ["0700"] and unit["UMask"] == ["0077"]
    assert unit["WorkingDirectory"] == ["/var/lib/hooksluice"]


def calls(sets):
    """The system calls of systemd's sets (`@name`), however deep."""
    said, waiting, found = {}, list(sets), set()
    while waiting:
        name = waiting.pop()
        if not name.startswith("@"):
            found.add(name)
        elif name not in said:
            said[name] = run("systemd-analyze", "syscall-filter", "--no-pager", name, quiet=True)
            lines = [line.strip() for line in said[name].splitlines()[1:]]
            waiting.extend(line for line in lines if line and not line.startswith("#"))
    return found


@check
def system_calls():
    """what the server calls, from start to end, is what the unit's filter lets through"""
    filters = [value.split() for value in directives(UNIT)["SystemCallFilter"]]
    allowed = calls(["@default"])
    for words in filters:
        if words[0].startswith("~"):
            # What @default and earlier lines name stays out as well: the last word counts.
            allowed -= calls([words[0][1:], *words[1:]]) - calls(["@default"])
        else:
            allowed |= calls(words)
    made = Path(tempfile.mkdtemp(dir=SCRATCH)) / "calls"
    toml = (
        f'listen = "127.0.0.1:{free_port()}"\n[upstreams.app]\nurl = "http://localhost:{free_port()}"\n'
        '[sources.plain]\npath = "/plain"\nprovider = "hmac"\nsecret = { env = "HOOK_SECRET" }\nupstreams = ["app"]\n'
    )
    address = re.search(r'listen = "(.*)"', toml).group(1)
    # -D: the server is what is started, and gets the signal; strace writes when it is over.
    strace = ["strace", "-D", "-f", "-qq", "-c", "-S", "name", "-U", "name", "-o", made]
    with server(toml, {"HOOK_SECRET": "a-secret-of-this-test"}, wrapper=strace) as admin:
        environment = {"HOOK_SECRET": "a-secret-of-this-test"}
        run(HOOKSLUICE, "send", "--provider", "hmac", "--secret-env", "HOOK_SECRET", f"http://{address}/plain", env=environment)
        assert get(f"{admin}/metrics")[0] == 200
    eventually("strace's word", lambda: made.exists() and "total" in made.read_text())
    used = set(re.findall(r"^\w+$", made.read_text(), re.MULTILINE)) - {"syscall", "total"}
    if os.geteuid() == 0:
        # SQLite gives its files to their folder's owner, but only as root, which the unit is not.
        used.discard("fchown")
    assert {"epoll_wait", "fdatasync", "accept4"} <= used, used
    print(len(used), "system calls")
    assert used <= allowed, f"not let through: {sorted(used - allowed)}"

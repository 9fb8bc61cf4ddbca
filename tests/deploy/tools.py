"""What the checks share: programs, the server under test, waiting."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
TARGET = Path(sys.argv[1]).resolve()
HOOKSLUICE = TARGET / "debug" / "hooksluice"
SCRATCH = TARGET / "deploy"
LONG = os.environ.get("HOOKSLUICE_LONG") == "1"
PATIENCE = 30

CHECKS = []


def check(function):
    """A function whose first line says what it proves; it fails by raising."""
    CHECKS.append(function)
    return function


def run(*command, **how):
    """Runs a program that must succeed, shows what it says, and returns its standard output."""
    done = ran(*command, **how)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]} ended with {done.returncode}")
    return done.stdout


def ran(*command, quiet=False, **how):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **how)
    if not quiet:
        sys.stdout.write(done.stdout[-3000:] + done.stderr[-3000:])
    return done


def refuses(*command, word, **how):
    """A validator must refuse this, and say why."""
    done = ran(*command, quiet=True, **how)
    said = done.stdout + done.stderr
    assert done.returncode != 0 and word in said, f"{command} took it ({done.returncode}):\n{said}"


def changed(path, old, new):
    """A copy of a file with one thing wrong with it."""
    text = Path(path).read_text()
    assert old in text, f"{path} does not say {old!r}"
    copy = Path(tempfile.mkdtemp(dir=SCRATCH)) / Path(path).name
    copy.write_text(text.replace(old, new))
    return copy


def seconds(text):
    """'45s', '5min', '10' of systemd and ours."""
    number, unit = re.fullmatch(r"(\d+)\s*([a-z]*)", str(text)).groups()
    return int(number) * {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}[unit]


def shutdown_seconds(toml):
    """How long an orderly end may take under this configuration."""
    server = tomllib.loads(toml).get("server", {})
    return seconds(server.get("shutdown_delay", "0s")) + seconds(server.get("shutdown_grace", "25s"))


def loads(toml):
    """The configuration is one that the server would start with, given its secrets."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(toml)
        file.flush()
        run(HOOKSLUICE, "check", "--without-secrets", "-c", file.name)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def eventually(what, probe):
    end = time.monotonic() + PATIENCE
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < end, f"waited {PATIENCE} s for {what}"
        time.sleep(0.02)


def get(url, headers=None):
    """Status and text of an answer; None while nobody listens."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (urllib.error.URLError, OSError):
        return None


def is_ready(url):
    return (get(url) or [0])[0] == 200


def get_json(url):
    status, text = get(url)
    assert status == 200, f"{url}: {status} {text}"
    return json.loads(text)


@contextmanager
def process(*command, **how):
    """A program that runs meanwhile and is ended afterwards."""
    with tempfile.TemporaryFile("w+") as log:
        child = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, **how)
        try:
            yield child
        except BaseException:
            log.seek(0)
            print(log.read()[-3000:])
            raise
        finally:
            child.terminate()
            child.wait(PATIENCE)


@contextmanager
def server(toml, environment=None, wrapper=()):
    """A running server with this configuration; the admin listener's URL."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as directory:
        config = Path(directory) / "hooksluice.toml"
        admin = free_port()
        config.write_text(toml + f'\n[admin]\nlisten = "127.0.0.1:{admin}"\n')
        environment = {"PATH": os.environ["PATH"], **(environment or {})}
        command = [*wrapper, HOOKSLUICE, "serve", "-c", config]
        with process(*command, cwd=directory, env=environment) as child:
            url = f"http://127.0.0.1:{admin}"
            eventually("the server to be ready", lambda: child.poll() is not None or is_ready(f"{url}/readyz"))
            assert child.poll() is None, "the server ended"
            yield url


def certificate(folder, name):
    """A certificate and its key, in files of a folder."""
    cert, key = Path(folder) / "cert.pem", Path(folder) / "key.pem"
    run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30",
        "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-out", cert, "-keyout", key, quiet=True,
    )
    return cert, key

"""Proxies in front: their own checks of what deploy/ gives them, and a signed request through nginx."""

import http.client
import os
import ssl
import tempfile
from pathlib import Path

from tools import DEPLOY, HOOKSLUICE, SCRATCH, certificate, changed, check, eventually, free_port, get_json, process, refuses, run, server

NGINX = DEPLOY / "nginx.conf"
CADDY = DEPLOY / "Caddyfile"
SECRET = {"HOOK_SECRET": "a-secret-of-the-proxy-test"}


def whole(conf, port, public):
    """A configuration that nginx can be started with: the file of deploy/, with a certificate and free ports."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    cert, key = certificate(folder, "hooks.example.com")
    text = Path(conf).read_text()
    for old, new in [
        ("/etc/ssl/hooks.example.com/fullchain.pem", str(cert)),
        ("/etc/ssl/hooks.example.com/privkey.pem", str(key)),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("127.0.0.1:8080", f"127.0.0.1:{public}"),
    ]:
        assert old in text, old
        text = text.replace(old, new)
    temporary = " ".join(
        f"{name}_temp_path {folder}/{name};" for name in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    user = "user root;" if os.geteuid() == 0 else ""
    path = folder / "nginx.conf"
    path.write_text(
        f"{user} daemon off; pid {folder}/pid; error_log stderr; events {{}}\n"
        f"http {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    return path


@check
def nginx():
    """nginx takes its file, and a request through it keeps its signature, its underscore and its client's address"""
    port, public = free_port(), free_port()
    conf = whole(NGINX, port, public)
    run("nginx", "-t", "-e", "stderr", "-c", conf)
    wrong = whole(changed(NGINX, "    location / {", "    location / {\n underscores_in_headers on;"), port, public)
    refuses("nginx", "-t", "-e", "stderr", "-c", wrong, word="not allowed here")

    toml = f"""
listen = "127.0.0.1:{public}"
[server]
trusted_proxies = ["127.0.0.1"]
[upstreams.app]
url = "http://127.0.0.1:{free_port()}"
[sources.plain]
path = "/plain"
provider = "own"
secret = {{ env = "HOOK_SECRET" }}
upstreams = ["app"]
[providers.own]
extends = "hmac"
signature = "header:X_Own_Signature"
"""
    with server(toml, SECRET) as admin, process("nginx", "-e", "stderr", "-c", conf):
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            body = Path(folder) / "body"
            body.write_bytes(b'{"a": 1.10}')
            command = [HOOKSLUICE, "sign", "--provider", "hmac", "--secret-env", "HOOK_SECRET", "--body", body]
            said = run(*command, quiet=True, env=SECRET)
        headers = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
        names = {name.lower(): name for name in headers}
        headers["X_Own_Signature"] = headers.pop(names["x-signature"])
        headers["X-Forwarded-For"] = "203.0.113.9"
        unverified = ssl._create_unverified_context()

        def status():
            sender = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=10, source_address=("127.0.0.2", 0), context=unverified
            )
            try:
                sender.request("POST", "/plain", b'{"a": 1.10}', headers)
                return sender.getresponse().status
            except OSError:
                return None

        assert eventually("nginx to answer", status) == 200
        (event,) = get_json(f"{admin}/api/v1/events?limit=5")["events"]
        # What nginx saw, not what the sender claimed.
        assert get_json(f"{admin}/api/v1/events/{event['id']}")["client"] == "127.0.0.2"


@check
def caddy():
    """Caddy takes its file"""
    run("caddy", "validate", "--adapter", "caddyfile", "--config", CADDY, env={"HOME": str(SCRATCH), "PATH": os.environ["PATH"]})
    wrong = changed(CADDY, "keepalive", "keepalives")
    refuses("caddy", "validate", "--adapter", "caddyfile", "--config", wrong, word="keepalives")

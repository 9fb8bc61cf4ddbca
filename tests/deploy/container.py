"""The image and the compose file."""

import fnmatch
import json
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from tools import (
    DEPLOY, HOOKSLUICE, LONG, ROOT, SCRATCH, TARGET, changed, check, eventually, free_port, loads, process, ran, refuses,
    run, seconds, server, shutdown_seconds,
)

DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
CONFIG = DEPLOY / "compose" / "hooksluice" / "hooksluice.toml"


def stages():
    """The Dockerfile's stages: lists of (instruction, its text)."""
    text = "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#"))
    found = []
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            if word == "FROM":
                found.append([])
            found[-1].append((word, " ".join(rest.split())))
    return found


def one(stage, word):
    (found,) = [rest for each, rest in stage if each == word]
    return found


@check
def lint():
    """hadolint finds nothing in the Dockerfile"""
    run("hadolint", DOCKERFILE)
    refuses("hadolint", changed(DOCKERFILE, "cc-debian12:nonroot", "cc-debian12:latest"), word="DL3007")


@check
def image():
    """the image runs as a number that is not root, checks itself, ends by SIGTERM, and takes commands"""
    build, final = stages()
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", one(final, "USER"))
    assert one(final, "STOPSIGNAL") == "SIGTERM"
    assert json.loads(one(final, "HEALTHCHECK").partition("CMD ")[2]) == ["/usr/bin/hooksluice", "health"]
    (program,) = json.loads(one(final, "ENTRYPOINT"))
    assert program == "/usr/bin/hooksluice" and json.loads(one(final, "CMD")) == ["serve"]
    assert one(final, "WORKDIR") == one(final, "VOLUME") == "/var/lib/hooksluice"
    # No secret in a layer: nothing of the context reaches the last stage but by name, and no variable either.
    assert not {"ARG", "ENV", "ADD", "RUN"} & {word for word, _ in final}
    assert all("--from=build" in rest for word, rest in final if word == "COPY")
    assert not {"ARG", "ENV"} & {word for word, _ in build}
    assert "--locked" in one(build, "RUN") and "--release" in one(build, "RUN")


def ignored(path, patterns):
    """Docker's rule: the last pattern that matches the path, or a folder above it, decides."""
    parts = Path(path).parts
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    out = False
    for pattern in patterns:
        if any(fnmatch.fnmatchcase(part, pattern.lstrip("!")) and part.count("/") == pattern.count("/") for part in above):
            out = not pattern.startswith("!")
    return out


def context():
    """What `docker build` would be given, in a folder of its own."""
    patterns = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", quiet=True, cwd=ROOT).splitlines()
    taken = [path for path in listed if not ignored(path, patterns) and (ROOT / path).is_file()]
    folder = SCRATCH / "context"
    shutil.rmtree(folder, ignore_errors=True)
    for path in taken:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    for secret in ["deploy/compose/secrets/stripe", ".env", ".git/config", "hooksluice-data/store.db", "target/debug/x"]:
        assert ignored(secret, patterns), f"{secret} would be sent to the builder"
    assert {Path(path).parts[0] for path in taken} == {".cargo", "Cargo.lock", "Cargo.toml", "config", "src", "tests"}
    return folder


# Lays the context over the project's folder, in a mount namespace of its own: cargo then finds in the target folder what
# was compiled from the same files, and reads every one of them from the context.
OVER = 'mkdir -p "$1/target" && mount --bind "$3" "$1/target" && mount --rbind "$1" "$2" && cd "$2" && sh -euc "$4"'


@check
def build():
    """the Dockerfile's build steps make the image's files from what .dockerignore lets in"""
    first, final = stages()
    steps = re.sub(r"--mount=\S+ ", "", one(first, "RUN"))
    folder = context()
    if LONG:
        print("$", steps)
        run("sh", "-euc", steps, cwd=folder)
    else:
        # The debug profile, since it is compiled already; HOOKSLUICE_LONG=1 runs the steps as they are.
        steps = steps.replace(" --release", "").replace("target/release", "target/debug")
        print("$", steps)
        run("unshare", "--mount", "sh", "-euc", OVER, "sh", folder, ROOT, TARGET, steps)
    for word, rest in final:
        if word == "COPY":
            source = [part for part in shlex.split(rest) if not part.startswith("--")][0]
            assert (folder / Path(source).relative_to("/src")).exists(), f"{source} was not made"
    made = folder / "image" / "bin" / "hooksluice"
    run(made, "--version")
    # What the cc image has; another library would be missing there.
    linked = {line.split()[0] for line in run("ldd", made).splitlines()}
    assert linked <= {"linux-vdso.so.1", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "/lib64/ld-linux-x86-64.so.2"}, linked


def composed():
    return json.loads(run("docker-compose", "-f", COMPOSE, "config", "--format", "json", quiet=True))


@check
def compose():
    """Docker Compose takes the compose file, and only hooksluice's public port is outside"""
    run("docker-compose", "-f", COMPOSE, "config", "--quiet")
    wrong = changed(COMPOSE, "stop_grace_period", "stop_grace_periods")
    refuses("docker-compose", "-f", wrong, "config", "--quiet", word="stop_grace_periods")

    services = composed()["services"]
    assert services.keys() == {"app", "hooksluice", "redis"}
    assert [name for name, service in services.items() if service.get("ports")] == ["hooksluice"]
    ours = services["hooksluice"]
    assert [port["target"] for port in ours["ports"]] == [8080]
    assert Path(ours["build"]["context"], ours["build"]["dockerfile"]).samefile(DOCKERFILE)
    assert seconds(ours["stop_grace_period"]) >= shutdown_seconds(CONFIG.read_text()) + 10
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"], name
        # Compose copies such a thing into the container, and cannot where it is read-only.
        assert not service.get("secrets") and not service.get("configs"), name
    volumes = {volume["target"]: volume for volume in ours["volumes"]}
    assert volumes["/var/lib/hooksluice"]["type"] == "volume", "the store outlives the container"
    assert Path(volumes["/etc/hooksluice"]["source"]).samefile(CONFIG.parent)
    secrets = Path(volumes["/run/secrets/hooksluice"]["source"])
    assert ran("git", "check-ignore", "-q", secrets / "stripe", cwd=ROOT).returncode == 0, "secrets could be committed"
    assert "noeviction" in services["redis"]["command"]


@check
def compose_configuration():
    """the configuration that compose mounts loads, and names what is there"""
    text = CONFIG.read_text()
    loads(text)
    services = composed()["services"]
    for host in re.findall(r'url = "\w+://([^:"]+)', text):
        assert host in services, host
    assert re.findall(r'file = "(.*?)/stripe"', text) == ["/run/secrets/hooksluice"]


@check
def compose_app():
    """an event goes through the mounted configuration to the app of the compose file"""
    app, public = free_port(), free_port()
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        secret = Path(folder) / "stripe"
        secret.write_text("whsec_c2VjcmV0LW9mLXRoZS1jb21wb3NlLXRlc3Q\n")
        script = Path(folder) / "app.py"
        script.write_text((DEPLOY / "compose" / "app" / "app.py").read_text().replace("3000", str(app)))
        said = Path(folder) / "said"
        text = CONFIG.read_text()
        # No Redis runs here: it is optional, and the store decides.
        text = re.sub(r"\[dedupe\.redis\]\n.*\n.*\n", "", text)
        for old, new in [
            ("0.0.0.0:8080", f"127.0.0.1:{public}"),
            ("http://app:3000", f"http://127.0.0.1:{app}"),
            ("/run/secrets/hooksluice/stripe", str(secret)),
            ("/var/lib/hooksluice", f"{folder}/store"),
        ]:
            assert old in text, old
            text = text.replace(old, new)
        with process("sh", "-c", f"exec python3 -u {script} > {said}"):
            with server(text):
                environment = {"STRIPE": secret.read_text().strip()}
                command = [HOOKSLUICE, "send", "--provider", "stripe", "--secret-env", "STRIPE"]
                run(*command, f"http://127.0.0.1:{public}/webhooks/stripe", env=environment)
                eventually("the app to have it", lambda: said.exists() and re.match(r"stripe \S+ \d+ bytes", said.read_text()))

"""Completions and manual pages, read by those who will read them."""

import tempfile
from pathlib import Path

from tools import HOOKSLUICE, SCRATCH, check, ran, refuses, run


def completions(shell):
    script = Path(tempfile.mkdtemp(dir=SCRATCH)) / f"hooksluice.{shell}"
    script.write_text(run(HOOKSLUICE, "completions", shell, quiet=True))
    return script


@check
def bash():
    """bash parses its completions, and completes with them"""
    script = completions("bash")
    run("bash", "-n", script)
    asked = (
        f'. {script}; COMP_WORDS=(hooksluice upst); COMP_CWORD=1; _hooksluice hooksluice upst hooksluice; echo "${{COMPREPLY[@]}}"'
    )
    assert run("bash", "-c", asked).split() == ["upstreams"]
    refuses("bash", "-n", "/dev/stdin", word="syntax error", input="if")


@check
def zsh():
    """zsh parses its completions"""
    run("zsh", "-n", completions("zsh"))
    refuses("zsh", "-n", "/dev/stdin", word="parse error", input="if")


@check
def fish():
    """fish parses its completions, and completes with them"""
    script = completions("fish")
    run("fish", "--no-execute", script)
    said = run("fish", "-c", f"source {script}; complete -C 'hooksluice upst'")
    assert said.startswith("upstreams"), said
    refuses("fish", "--no-execute", "/dev/stdin", word="end", input="if true")


@check
def pages():
    """man and mandoc read a page for each command without a warning"""
    directory = Path(tempfile.mkdtemp(dir=SCRATCH)) / "man1"
    run(HOOKSLUICE, "man", directory)
    written = sorted(directory.iterdir())
    names = {page.stem for page in written}
    assert {"hooksluice", "hooksluice-serve", "hooksluice-events-replay"} <= names, names
    assert written and run(HOOKSLUICE, "man", quiet=True) == (directory / "hooksluice.1").read_text()
    for page in written:
        done = ran("man", "-l", "--warnings", page, quiet=True, env={"MANROFFOPT": "", "MANWIDTH": "200", "PATH": "/usr/bin:/bin"})
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert page.stem.replace("-", " ") in " ".join(done.stdout.split()), done.stdout
        for line in ran("mandoc", "-T", "lint", "-W", "warning", page, quiet=True).stdout.splitlines():
            # A date would change each build's page; empty lines that the generator makes twice are shown once.
            assert "missing date" in line or "skipping paragraph macro" in line, line
    refuses("mandoc", "-T", "lint", "-W", "warning", "/dev/stdin", word="WARNING", input=".TH X 1\n.nosuch\n")
    print(f"{len(written)} pages")

"""Alert rules and the dashboard, against a real Prometheus that scrapes a real server."""

import json
import re
import tempfile
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

import promql_parser
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from tools import (
    DEPLOY, HOOKSLUICE, ROOT, SCRATCH, certificate, changed, check, eventually, free_port, get_json, is_ready, process, ran, refuses, run, server,
)

HERE = Path(__file__).parent
RULES = DEPLOY / "prometheus" / "alerts.yaml"
CONFIG = DEPLOY / "prometheus" / "prometheus.yaml"
DASHBOARD = DEPLOY / "grafana" / "hooksluice.json"
UNIT_TESTS = [HERE / "alerts_test.yaml", HERE / "alerts_slow_test.yaml"]


def alerts():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def dashboard():
    return json.loads(DASHBOARD.read_text())


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


@check
def rules():
    """promtool takes the rules and the scrape configuration"""
    run("promtool", "check", "rules", RULES)
    run("promtool", "check", "config", CONFIG)
    refuses("promtool", "check", "rules", changed(RULES, "hooksluice_store_writable == 0", "hooksluice_store_writable =="), word="parse")


@check
def unit_tests():
    """each alert fires in its case, not before, and no other with it (promtool test rules)"""
    run("promtool", "test", "rules", *UNIT_TESTS)
    fires = set()
    for file in UNIT_TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            samples = [case["exp_samples"] for case in test["promql_expr_test"]]
            assert [] in samples and any(samples), f"{test['name']}: not tested both ways"
            fires.update(re.findall(r'alertname="(\w+)"', str(samples)))
    assert fires == {rule["alert"] for rule in alerts()}, "an alert without a test"


def anchors(text):
    """The anchors that Markdown's readers give to headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@check
def advice():
    """each alert says what happened, what to do, and where the README says more"""
    readme = (ROOT / "README.md").read_text()
    for rule in alerts():
        notes = rule["annotations"]
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}
        assert len(notes["summary"]) > 20 and len(notes["action"]) > 20, rule["alert"]
        file, _, anchor = notes["runbook"].partition("#")
        assert file == "README.md" and anchor in anchors(readme), notes["runbook"]
        assert rule["alert"] in readme, f"{rule['alert']} is not in the README"
        for command in re.findall(r"`(hooksluice [^`]*)`", notes["action"]):
            words = [word for word in command.split()[1:] if re.fullmatch("[a-z]+", word)][:2]
            known = [words[:n] for n in (2, 1) if ran(HOOKSLUICE, *words[:n], "--help", quiet=True).returncode == 0]
            assert known, f"no such command: {command}"


@check
def grafana():
    """Grafana's own types know every field of the dashboard"""
    register_default_plugins()
    written = dashboard()
    lost = list(differences(written, json.loads(JSONEncoder().encode(Dashboard.from_json(written)))))
    assert not lost, lost
    ids = [panel["id"] for panel in written["panels"]]
    assert len(ids) == len(set(ids)) > 20
    cells = [(x, y) for panel in written["panels"] for x, y in covered(panel["gridPos"])]
    assert len(cells) == len(set(cells)), "panels overlap"
    wrong = dashboard()
    wrong["panels"][1]["fieldConfig"]["defaults"]["unti"] = "s"
    assert list(differences(wrong, json.loads(JSONEncoder().encode(Dashboard.from_json(wrong)))))


def covered(place):
    return [(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]


def differences(written, read, at=""):
    """What of `written` is not in `read`."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read and value is not None:
                yield f"{at}/{name}"
            elif name in read:
                yield from differences(value, read[name], f"{at}/{name}")
    elif isinstance(written, list) and isinstance(read, list) and len(written) == len(read):
        for number, (one, other) in enumerate(zip(written, read)):
            yield from differences(one, other, f"{at}/{number}")
    elif written != read:
        yield at


SECRET = "a-secret-of-the-metrics-test"
IDEMPOTENT = 'idempotency = { scope = "public", replicas = "sticky" }'


@contextmanager
def busy_server():
    """A server that has taken, refused, delivered and given up something, with every part that has metrics."""
    public = free_port()
    toml = f"""
listen = "127.0.0.1:{public}"
[dedupe.redis]
url = "redis://127.0.0.1:{free_port()}"
namespace = "metrics"
on_down = "store"
admit_timeout = "100ms"
[upstreams.app]
url = "http://127.0.0.1:{free_port()}"
retry = {{ first = "1s", max_attempts = 1 }}
[sources.plain]
path = "/plain"
provider = "hmac"
secrets = [{{ env = "HOOK_SECRET", label = "now" }}]
upstreams = ["app"]
# A sender whose patience is known, and a secret that ends.
[sources.checks]
path = "/checks"
provider = "checkr"
secrets = [{{ env = "HOOK_SECRET", label = "now", not_after = "2099-01-01T00:00:00Z" }}]
upstreams = ["app"]
[routes.rest]
path = "/{{*rest}}"
upstream = "app"
{IDEMPOTENT}
"""
    environment = {"HOOK_SECRET": SECRET, "OTHER_SECRET": "another-one"}
    with server(toml, environment) as admin:
        for secret in ["HOOK_SECRET", "OTHER_SECRET"]:
            command = [HOOKSLUICE, "send", "--provider", "hmac", "--secret-env", secret, f"http://127.0.0.1:{public}/plain"]
            ran(*command, env=environment)
        yield admin


@contextmanager
def encrypted_server():
    """A server with a certificate."""
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        cert, key = certificate(folder, "hooks.example.com")
        toml = f"""
listen = "127.0.0.1:{free_port()}"
[tls]
certificates = [{{ cert = "{cert}", key = "{key}" }}]
[upstreams.app]
url = "http://127.0.0.1:{free_port()}"
[sources.plain]
path = "/plain"
provider = "hmac"
secret = {{ env = "HOOK_SECRET" }}
upstreams = ["app"]
"""
        with server(toml, {"HOOK_SECRET": SECRET}) as admin:
            yield admin


@contextmanager
def prometheus(*admins):
    """A Prometheus with the configuration of deploy/, which has scraped the servers a few times; asks it a query."""
    folder = Path(tempfile.mkdtemp(dir=SCRATCH))
    settings = yaml.safe_load(CONFIG.read_text())
    (job,) = settings["scrape_configs"]
    job["static_configs"] = [{"targets": [admin.removeprefix("http://") for admin in admins]}]
    settings["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    settings["rule_files"] = [str(RULES)]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    url = f"http://127.0.0.1:{free_port()}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    with process(*command, f"--web.listen-address={url.removeprefix('http://')}"):
        eventually("Prometheus to be ready", lambda: is_ready(f"{url}/-/ready"))

        def query(expression):
            answer = get_json(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
            return answer["data"]["result"]

        scrapes = "count_over_time(hooksluice_build_info[1m]) >= 3"
        eventually("three scrapes of each", lambda: len(query(scrapes)) == len(admins))
        yield url, query


def selectors(expression):
    """Every series that an expression asks for, as the expression names it."""
    found, waiting = [], [promql_parser.parse(expression)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, promql_parser.VectorSelector):
            found.append(part)
        elif isinstance(part, promql_parser.MatrixSelector):
            found.append(part.vector_selector)
        waiting.extend(inner for inner in children(part))
    assert found, expression
    return found


def children(part):
    for name in ["expr", "lhs", "rhs", "param"]:
        inner = getattr(part, name, None)
        if isinstance(inner, promql_parser.Expr):
            yield inner
    yield from getattr(part, "args", None) or []


def written(selector):
    """`name{label="value"}` without an offset: what there must be now."""
    matchers = ", ".join(f"{m.name}{operator(m)}{json.dumps(m.value)}" for m in selector.matchers.matchers)
    return f"{selector.name}{{{matchers}}}"


def operator(matcher):
    return {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}[str(matcher.op).rpartition(".")[2]]


@check
def queries():
    """every series that a rule or a panel names exists, and every panel has something to draw (Prometheus)"""
    with busy_server() as busy, encrypted_server() as encrypted, prometheus(busy, encrypted) as (url, query):
        asked = {rule["alert"]: rule["expr"] for rule in alerts()}
        drawn = {}
        for panel in panels():
            for target in panel["targets"]:
                expression = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*")
                drawn[f"{panel['title']} {target['refId']}"] = (expression, target["legendFormat"])
        missing = []
        for name, expression in {**asked, **{name: drawn[name][0] for name in drawn}}.items():
            for selector in selectors(expression):
                if not query(written(selector)):
                    missing.append(f"{name}: {written(selector)}")
        assert not missing, "\n".join(missing)
        for name, (expression, legend) in drawn.items():
            results = query(expression)
            assert results, f"{name} is empty: {expression}"
            for label in re.findall(r"{{(\w+)}}", legend):
                assert all(label in result["metric"] for result in results), f"{name}: no {label}"
        assert not query('hooksluice_no_such_metric{job="hooksluice"}')
        groups = get_json(f"{url}/api/v1/rules")["data"]["groups"]
        states = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert states == {rule["alert"]: "ok" for rule in alerts()}, states
        print(f"{len(asked)} alerts, {len(drawn)} queries of {len(panels())} panels")


"""The manifests: schemas of a named version, and what no schema can ask for."""

import tomllib
from pathlib import Path

import yaml
from tools import DEPLOY, changed, check, loads, refuses, run, shutdown_seconds

# The oldest and the newest that the manifests are for.
VERSIONS = ["1.30.0", "1.37.0"]
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
LIVE = ["/usr/bin/hooksluice", "health", "--live"]
READY = ["/usr/bin/hooksluice", "health"]


def documents(path):
    return [document for document in yaml.safe_load_all(Path(path).read_text()) if document]


def of_kind(path, *kinds):
    return [document for document in documents(path) if document["kind"] in kinds]


def workload(path):
    (found,) = of_kind(path, "Deployment", "StatefulSet")
    return found


def pod(path):
    return workload(path)["spec"]["template"]["spec"]


def container(path):
    (found,) = [one for one in pod(path)["containers"] if one["name"] == "hooksluice"]
    return found


def toml(path):
    (config,) = of_kind(path, "ConfigMap")
    return config["data"]["hooksluice.toml"]


def source_of(path, directory):
    """The volume that holds this path in hooksluice's container, and what it is made of."""
    mounts = [m for m in container(path)["volumeMounts"] if f"{directory}/".startswith(m["mountPath"] + "/")]
    assert len(mounts) == 1, f"{path}: {directory} is in {len(mounts)} volumes"
    claims = {c["metadata"]["name"]: {"claim": c["spec"]} for c in workload(path)["spec"].get("volumeClaimTemplates", [])}
    volumes = {volume["name"]: volume for volume in pod(path).get("volumes", [])} | claims
    return volumes[mounts[0]["name"]]


def judge(path):
    """All that we ask of a manifest beyond its schema."""
    spec, ours, config = pod(path), container(path), tomllib.loads(toml(path))
    assert "emptyDir" not in str(documents(path)), "a store, or what should be read-only, on an emptyDir"
    assert "subPath" not in str(documents(path)), "what is mounted by subPath is never updated"
    assert not of_kind(path, "Secret"), "an example's secret would be left in place"

    # Probes: only what a restart can mend restarts it.
    assert ours["livenessProbe"]["exec"]["command"] == LIVE
    assert ours["startupProbe"]["exec"]["command"] == LIVE
    assert ours["readinessProbe"]["exec"]["command"] == READY

    # The end: endpoints go first, then what runs is finished.
    assert config["server"]["shutdown_delay"] == "5s"
    assert spec["terminationGracePeriodSeconds"] >= shutdown_seconds(toml(path)) + 10
    for other in spec["containers"]:
        if other["name"] != "hooksluice":
            stays = other["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert shutdown_seconds(toml(path)) <= stays < spec["terminationGracePeriodSeconds"], other["name"]

    # Rights.
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    for each in spec["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert each["resources"]["requests"] and each["resources"]["limits"]["memory"]

    # What the configuration names is there.
    at = ours["args"][ours["args"].index("-c") + 1]
    assert source_of(path, at)["configMap"]
    for place in secrets(config):
        assert source_of(path, place)["secret"], place
    replicas = workload(path)["spec"]["replicas"]
    if "postgres" in config["store"]:
        assert replicas > 1 and of_kind(path, "PodDisruptionBudget")
    else:
        assert replicas == 1 and workload(path)["kind"] == "StatefulSet"
        claim = source_of(path, config["store"]["sqlite"]["path"])["claim"]
        size = claim["resources"]["requests"]["storage"]
        assert int(config["store"]["max_bytes"].removesuffix("GiB")) < int(size.removesuffix("Gi"))

    # What is reached from where.
    (service,) = of_kind(path, "Service")
    (port,) = service["spec"]["ports"]
    ports = {p["name"]: p["containerPort"] for p in ours["ports"]}
    assert ports[port["targetPort"]] == int(config["listen"].rpartition(":")[2]), "the public port and no other"
    (policy,) = of_kind(path, "NetworkPolicy")
    for rule in policy["spec"]["ingress"]:
        if {"port": "admin"} in rule["ports"]:
            assert rule["from"], "the admin port is open to all"
    labels = workload(path)["spec"]["template"]["metadata"]["labels"].items()
    for document in of_kind(path, "Service"):
        assert document["spec"]["selector"].items() <= labels
    for document in of_kind(path, "PodDisruptionBudget"):
        assert document["spec"]["selector"]["matchLabels"].items() <= labels
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels


def secrets(value):
    """Every `{ file = … }` of a configuration."""
    if isinstance(value, dict):
        if isinstance(value.get("file"), str):
            yield value["file"]
        for inner in value.values():
            yield from secrets(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from secrets(inner)


@check
def schemas():
    """kubernetes-validate takes every manifest, strictly, as the oldest and the newest version"""
    assert len(MANIFESTS) == 4, MANIFESTS
    for version in VERSIONS:
        run("kubernetes-validate", "--strict", "-k", version, *MANIFESTS)
    wrong = changed(MANIFESTS[0], "terminationGracePeriodSeconds", "terminationGraceSeconds")
    refuses("kubernetes-validate", "--strict", "-k", VERSIONS[0], wrong, word="terminationGraceSeconds")


@check
def arrangements():
    """a sidecar and a server by itself, each on PostgreSQL and on a volume claim, and no store on an emptyDir"""
    for path in MANIFESTS:
        judge(path)
    found = {
        (len(pod(path)["containers"]) > 1, "postgres" in tomllib.loads(toml(path))["store"]) for path in MANIFESTS
    }
    assert found == {(True, True), (True, False), (False, True), (False, False)}, found


@check
def mistakes():
    """what would lose events, or kill a server whose database is away, is refused"""
    claims = DEPLOY / "kubernetes" / "statefulset.yaml"
    shared = DEPLOY / "kubernetes" / "deployment.yaml"
    judge(claims)
    judge(shared)
    wrong = [
        changed(claims, "      volumes:\n", "      volumes:\n        - name: store\n          emptyDir: {}\n"),
        changed(claims, "replicas: 1", "replicas: 2"),
        changed(claims, 'path = "/var/lib/hooksluice/store"', 'path = "/data"'),
        changed(shared, 'command: ["/usr/bin/hooksluice", "health", "--live"]', 'command: ["/usr/bin/hooksluice", "health"]'),
        changed(shared, "terminationGracePeriodSeconds: 45", "terminationGracePeriodSeconds: 30"),
        changed(shared, "targetPort: http", "targetPort: admin"),
        changed(shared, "mountPath: /run/secrets/hooksluice", "mountPath: /run/secrets/other"),
    ]
    for path in wrong:
        try:
            judge(path)
        except (AssertionError, KeyError):
            continue
        raise AssertionError(f"{path} was taken")


@check
def configurations():
    """the configuration in each manifest loads"""
    for path in MANIFESTS:
        loads(toml(path))

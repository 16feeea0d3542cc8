"""The manifests of deploy/kubernetes against our settings and commands, and Kubernetes' schemas."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from streamydb.cli import app
from streamydb.facade.endpoints import ENDPOINTS
from streamydb.facade.settings import FacadeSettings
from streamydb.pipeline.__main__ import _parser
from streamydb.settings import Settings

TOP = Path(__file__).resolve().parents[3]
DEPLOY = TOP / "deploy" / "kubernetes"
USER = 10001
COMPONENTS = ("standby", "connect", "spark", "kafka-tls")
PATCHES = ("kustomization.yaml", "driver.yaml")

OVERLAY = """
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: bank
resources: [base]
components: [{components}]
images: [{{name: streamydb, newName: registry.example/streamydb, newTag: "1"}}]
"""


def plain() -> list[dict[str, Any]]:
    """What the files hold, as it stands there."""
    files = [path for path in sorted(DEPLOY.glob("*/*.yaml")) if path.name not in PATCHES]
    return [one for path in files for one in yaml.safe_load_all(path.read_text("utf-8"))]


def rendered(folder: Path, *components: str) -> list[dict[str, Any]]:
    """What kustomize makes of an overlay as docs/production.md has it."""
    shutil.copytree(DEPLOY, folder, dirs_exist_ok=True)
    text = OVERLAY.format(components=", ".join(components))
    (folder / "kustomization.yaml").write_text(text, "utf-8")
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each workload with the specification of its pods."""
    for one in manifests:
        if "template" in one.get("spec", {}):
            yield one, one["spec"]["template"]["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", ()), *pod["containers"]]


def check(manifests: list[dict[str, Any]]) -> None:
    """Hold manifests against what the program takes."""
    seen = set()
    for workload, pod in pods(manifests):
        volumes = {one["name"] for one in pod["volumes"]}
        claims = workload["spec"].get("volumeClaimTemplates", ())
        volumes |= {one["metadata"]["name"] for one in claims}
        _check_pod(pod)
        for one in containers(pod):
            seen.add(one["name"])
            _check_container(one)
            assert {mount["name"] for mount in one["volumeMounts"]} <= volumes
            _check_paths(one)
            _check_probes(one)
    assert {"pipeline", "facade", "read-model", "topics", "kernels"} <= seen
    known = {f"STREAMYDB_{name.upper()}" for name in Settings.model_fields}
    for one in manifests:
        if one["kind"] == "ConfigMap" and "spark" not in one["metadata"]["name"]:
            assert set(one["data"]) <= known
    _check_services(manifests)


def _check_pod(pod: dict[str, Any]) -> None:
    """No privilege, no token of the cluster but for Spark's driver, no variables of services that
    look like ours.
    """
    context = pod["securityContext"]
    assert context["runAsNonRoot"]
    assert (context["runAsUser"], context["fsGroup"]) == (USER, USER)
    assert f"--uid {USER} " in (TOP / "docker" / "Dockerfile").read_text("utf-8")
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is ("serviceAccountName" in pod)
    assert pod["enableServiceLinks"] is False


def _check_container(one: dict[str, Any]) -> None:
    assert one["image"].rpartition("/")[2].partition(":")[0] == "streamydb"
    assert one["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert one["resources"]["limits"].keys() == {"memory"}
    assert one["resources"]["requests"].keys() == {"cpu", "memory"}
    if "args" in one:
        parse(one["args"])
    known = {f"STREAMYDB_{name.upper()}" for name in Settings.model_fields}
    known |= {f"STREAMYDB_SERVE_{name.upper()}" for name in FacadeSettings.model_fields}
    known |= {"POD_NAME", "POD_NAMESPACE", "POD_IP"}
    assert {variable["name"] for variable in one.get("env", ())} <= known


def _check_paths(one: dict[str, Any]) -> None:
    """Files that a setting or an option names lie on a volume."""
    mounted = [mount["mountPath"] for mount in one["volumeMounts"]]
    named = [text for text in one.get("args", ()) if text.startswith("/")]
    if one.get("args", ["create"])[0] != "create":
        assert "/cache/numba" in mounted, "numba refuses a folder of kernels that it cannot write"
    named += [each["value"] for each in one.get("env", ()) if each["name"].endswith("_FILE")]
    for path in named:
        assert any(path.startswith(f"{folder}/") for folder in mounted), path


def _check_probes(one: dict[str, Any]) -> None:
    paths = {row.path for row in ENDPOINTS if row.any_host}
    ports = {port["name"] for port in one.get("ports", ())}
    for kind in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = one.get(kind, {})
        if "httpGet" in probe:
            assert probe["httpGet"]["path"] in paths
            assert probe["httpGet"]["port"] in ports
        elif probe:
            program, *arguments = probe["exec"]["command"]
            assert program == "streamydb"
            parse(arguments)


def _check_services(manifests: list[dict[str, Any]]) -> None:
    """A service finds its pods, and a port of theirs; a stateful set has its service."""
    names = {one["metadata"]["name"] for one in manifests if one["kind"] == "Service"}
    of_part: dict[str, set[str]] = {}
    for workload, pod in pods(manifests):
        if workload["kind"] == "StatefulSet":
            assert workload["spec"]["serviceName"] in names
        part = workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        ports = {port["name"] for one in containers(pod) for port in one.get("ports", ())}
        of_part.setdefault(part, set()).update(ports)
    for one in manifests:
        if one["kind"] == "Service":
            part = one["spec"]["selector"]["app.kubernetes.io/component"]
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= of_part[part]


def parse(arguments: list[str]) -> None:
    """Have the command line understand a command, which is not run."""
    name, *options = arguments
    if name == "pipeline":
        given = [one.removeprefix("--option=") for one in options if one != "--standby"]
        known = ("--master=k8s://", "--conf=spark.", "--local=/tmp/")
        assert all(one.startswith(known) for one in given)
        _parser(submitted=False).parse_args(["--checkpoint=/data", *given])
    commands: Any = typer.main.get_command(app)
    commands.commands[name].make_context(name, options)


def test_the_files_fit_the_program() -> None:
    check(plain())


def test_the_standby_is_a_pipeline() -> None:
    def read(path: str) -> list[str]:
        lines = (DEPLOY / path).read_text("utf-8").splitlines()
        return [line for line in lines if not line.startswith("#")]

    as_standby = [
        re.sub(r"(name: |serviceName: |component: )pipeline\b", r"\1standby", line).replace(
            "args: [pipeline]", "args: [pipeline, --standby]"
        )
        for line in read("base/pipeline.yaml")
    ]
    assert read("standby/standby.yaml") == as_standby


def _executor(settings: dict[str, Any]) -> dict[str, Any]:
    """An executor's pod, of the template that the driver gets, with what Spark adds."""
    pod: dict[str, Any] = yaml.safe_load(settings["data"]["executor.yaml"])
    (container,) = pod["spec"]["containers"]
    container["image"] = "streamydb"
    return {**pod, "metadata": {"name": "executor"}}


def test_an_executor_may_do_no_more_than_the_other_pods() -> None:
    text = (DEPLOY / "spark" / "executor.yaml").read_text("utf-8")
    pod = _executor({"data": {"executor.yaml": text}})["spec"]
    _check_pod(pod)
    (one,) = pod["containers"]
    assert {mount["name"] for mount in one["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    _check_container({**one, "resources": {"limits": {"memory": 0}, "requests": {
        "cpu": 0, "memory": 0}}})  # fmt: skip
    driver = (DEPLOY / "spark" / "driver.yaml").read_text("utf-8")
    (claim,) = yaml.safe_load(driver)["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (shared,) = [each for each in pod["volumes"] if each["name"] == "data"]
    claimed = shared["persistentVolumeClaim"]["claimName"]
    assert claimed == f"{claim['metadata']['name']}-pipeline-0"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl renders")
@pytest.mark.parametrize("components", [(), ("standby",), COMPONENTS], ids=len)
def test_what_kustomize_renders_fits_the_program_and_kubernetes(
    components: tuple[str, ...], tmp_path: Path
) -> None:
    found = rendered(tmp_path, *components)
    check(found)
    maps = [one for one in found if one["kind"] == "ConfigMap"]
    (settings,) = [one for one in maps if "spark" not in one["metadata"]["name"]]
    for _, pod in pods(found):
        for one in pod["containers"]:
            named = [each["configMapRef"]["name"] for each in one["envFrom"]]
            assert named[0] == settings["metadata"]["name"], "its name goes by its content"
            assert named[1:] in ([], ["spark"])
            if "kafka-tls" in components:
                assert "STREAMYDB_SASL_USERNAME" in {each["name"] for each in one["env"]}
                assert "/secrets/kafka" in {each["mountPath"] for each in one["volumeMounts"]}
    validate = pytest.importorskip("kubernetes_validate").validate
    for one in [*found, *(_executor(one) for one in maps if "executor.yaml" in one["data"])]:
        validate(one, "1.32", strict=True)

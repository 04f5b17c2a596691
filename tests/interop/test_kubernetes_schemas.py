"""Manifests match the schemas of Kubernetes, Strimzi, Prometheus' operator and KEDA; `make interop`
creates the environment for the first.

CEL rules, admission and defaults are not checked, because there is no API server.
"""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.interop.custom_resources import STRIMZI_KINDS, schema_of
from tests.interop.environments import python_of
from tests.typed_files import RANK, a_typed_file

ROOT = Path(__file__).parents[2]
CUSTOM = (*STRIMZI_KINDS, "PodMonitor")

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of `headrace kubernetes` for a pipeline with a gateway, a dashboard, two
    devices."""
    folder = tmp_path_factory.mktemp("kubernetes")
    words = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    words["cluster"] |= {"gateway": {"processes": 2}, "devices": {"cpu": 2, "cuda:0": 1}}
    words["cluster"]["dashboard"] = {}
    (folder / "words.py").write_text((ROOT / "examples/words/words.py").read_text())
    file, manifest = folder / "pipeline.yaml", folder / "manifest.yaml"
    file.write_text(yaml.safe_dump(words))
    command = [
        sys.executable, "-m", "headrace", "kubernetes", str(file), "--strimzi", "main",
        "--pod-monitor", "--gateway-tokens", "callers", "--gateway-tls", "front",
    ]  # fmt: skip
    manifest.write_bytes(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    return manifest


def test_every_object_of_kubernetes_is_what_its_schema_says(manifest: Path) -> None:
    done = subprocess.run(
        [python_of("kubernetes"), Path(__file__).parent / "kubernetes_calls.py", manifest],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 15


def custom_objects(manifest: Path, kind: str) -> list[dict[str, Any]]:
    found = [each for each in yaml.safe_load_all(manifest.read_text()) if each["kind"] == kind]
    assert found
    return found


def faults(made: dict[str, Any]) -> list[str]:
    """Return the violations of the schema of the object's kind."""
    schema = schema_of(made["kind"])
    version = made["apiVersion"].partition("/")[2]
    wrong = [] if schema["title"].endswith(f" {version}") else [f"{version} is not served"]
    found = Draft202012Validator(schema).iter_errors(made)
    return [*wrong, *(f"{error.json_path}: {error.message}" for error in found)]


@pytest.mark.parametrize("kind", CUSTOM)
def test_every_custom_object_is_what_its_projects_schema_says(manifest: Path, kind: str) -> None:
    for made in custom_objects(manifest, kind):
        assert faults(made) == [], made["metadata"]["name"]


def _prefixed(made: dict[str, Any]) -> None:
    made["spec"]["authorization"]["acls"][0]["resource"]["patternType"] = "prefixed"


def _operation(made: dict[str, Any]) -> None:
    acl = made["spec"]["authorization"]["acls"][0]
    acl["operations"] = ["Drain"]


def _partitions(made: dict[str, Any]) -> None:
    made["spec"]["partitions"] = "4"


def _misspelt(made: dict[str, Any]) -> None:
    made["spec"]["topicname"] = made["spec"].pop("topicName")


def _old(made: dict[str, Any]) -> None:
    made["apiVersion"] = "kafka.strimzi.io/v1beta2"


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the output of `headrace kubernetes` for a pipeline that rents devices."""
    folder = tmp_path_factory.mktemp("keda")
    text = RANK.replace("budget: 1.2", "budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    command = [
        sys.executable, "-m", "headrace", "kubernetes", str(a_typed_file(folder, text)),
        "--keda", "http://prometheus:9090",
    ]  # fmt: skip
    manifest = folder / "manifest.yaml"
    manifest.write_bytes(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    return manifest


def test_every_scaled_object_is_what_kedas_schema_says(scaled: Path) -> None:
    made = custom_objects(scaled, "ScaledObject")
    assert [each["metadata"]["name"] for each in made] == ["rank-worker-gpu", "rank-worker-slow"]
    for each in made:
        assert faults(each) == []


def test_kedas_schema_notices_a_mistake(scaled: Path) -> None:
    made = custom_objects(scaled, "ScaledObject")[0]
    made["spec"]["triggers"][0]["metadata"]["threshold"] = 1
    made["spec"]["maxReplicas"] = made["spec"].pop("maxReplicaCount")
    assert len(faults(made)) == 2


def _endpoint(made: dict[str, Any]) -> None:
    made["spec"]["podMetricsEndpoints"] = {"port": "metrics"}


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("KafkaUser", _prefixed), ("KafkaUser", _operation), ("KafkaTopic", _partitions),
        ("KafkaTopic", _misspelt), ("KafkaTopic", _old), ("PodMonitor", _endpoint),
    ],
)  # fmt: skip
def test_the_schemas_notice_a_mistake(
    manifest: Path, kind: str, spoil: Callable[[dict[str, Any]], None]
) -> None:
    made = copy.deepcopy(custom_objects(manifest, kind)[0])
    spoil(made)
    assert faults(made)

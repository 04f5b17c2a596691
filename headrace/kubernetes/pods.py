"""The pods of a pipeline's roles: containers, probes, volumes, rights. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from headrace.config.pipeline_file import PipelineFile
from headrace.kubernetes.folder import key_of
from schemas.pipeline import Pipeline

MOUNTED = "/opt/pipeline"
HOME = "/var/lib/headrace"
PROPERTIES = "/etc/headrace/client.properties"
AUTHORITY = "/etc/headrace/authority"
SECRETS = "/etc/headrace-gateway"
METRICS_PORT = 9400
USER = 1000  # of the image
# Above the ten seconds in which a worker hands its slots over and a gateway drains.
GRACE_S = 45
LOADS_WITHIN_S = 300  # a model
PROBED_EVERY_S = 5


_REFUSED = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesOptions:
    """Options beyond the pipeline file.

    ``worker_image`` is that of workers, profilers and the scorer (None: ``image``), ``image`` that
    of other roles.
    ``claim`` names a PersistentVolumeClaim that holds the pipeline's folder ("": a ConfigMap does).
    ``strimzi`` names the Kafka cluster of Strimzi whose topics and users are made ("": none).
    ``keda`` is the address of the Prometheus that KEDA asks how many workers should run ("": none).
    ``keep_replicas``: objects that may be scaled name no number of pods, so that applying them
    keeps the present one. With ``keda``, those that KEDA scales name none in any case.
    ``gateway_tokens`` and ``gateway_tls`` name the gateway's secrets ("": none): bearer tokens
    under the key ``tokens``, and a certificate of type ``kubernetes.io/tls``.
    """

    image: str
    bootstrap: str
    worker_image: str | None = None
    namespace: str = "default"
    claim: str = ""
    strimzi: str = ""
    pod_monitor: bool = False
    keda: str = ""
    keep_replicas: bool = False
    gateway_tokens: str = ""
    gateway_tls: str = ""


def device_part(device: str) -> str:
    """Return a device's, or process's, name as part of the names of Kubernetes' objects."""
    return _REFUSED.sub("-", device.lower())


def workers_name(pipeline: str, device: str) -> str:
    """Return the name of the StatefulSet of a device's workers."""
    return f"{pipeline}-worker-{device_part(device)}"


def labels(pipeline: str, role: str) -> dict[str, str]:
    """Return the labels of a role's objects."""
    return {
        "app.kubernetes.io/name": "headrace",
        "app.kubernetes.io/instance": pipeline,
        "app.kubernetes.io/component": role,
        "app.kubernetes.io/managed-by": "headrace-kubernetes",
    }


@dataclass(frozen=True, slots=True)
class Installation:
    """A pipeline on Kubernetes; ``files`` are those of its folder, by path."""

    file: PipelineFile
    files: Mapping[str, bytes]
    options: KubernetesOptions

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.file.pipeline.name

    def made(self, api: str, kind: str, name: str, role: str, **more: Any) -> dict[str, Any]:
        """Return an object of a role."""
        place = {"name": name, "namespace": self.options.namespace}
        metadata = {**place, "labels": labels(self.pipeline, role)}
        return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def pod(
    of: Installation,
    role: str,
    command: Sequence[str],
    *,
    resources: Mapping[str, Mapping[str, str]] | None = None,
    ports: Mapping[str, int] = MappingProxyType({"metrics": METRICS_PORT}),
    secrets: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the template of a role's pods.

    ``command`` is the headrace command line. Of its ``ports`` by name, probes use ``metrics``;
    ``secrets`` are mounted under ``SECRETS`` by the names of their folders.
    """
    options, secrets = of.options, secrets or {}
    requests = resources or (_ONE_CORE if role == "profiler" else _LIGHT)
    container = {
        "name": role,
        "image": (options.worker_image if role in IMPORTING else None) or options.image,
        "args": list(command),
        "env": _environment(of.file.pipeline, role, options),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
        **(_probes() if "metrics" in ports else {}),
        "resources": {name: dict(amounts) for name, amounts in requests.items()},
        "securityContext": _NO_PRIVILEGES,
        "volumeMounts": _mounts(options, secrets),
    }
    spec = {
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "securityContext": _UNPRIVILEGED_USER,
        "containers": [container],
        "volumes": _volumes(of, secrets),
    }
    made: dict[str, Any] = {"labels": labels(of.pipeline, role)}
    if not options.claim:
        made["annotations"] = {"headrace/folder": _digest(of.files)}
    return {"metadata": made, "spec": spec}


def _digest(files: Mapping[str, bytes]) -> str:
    """Return a digest of a folder: roles read it when they start, so a change must replace them."""
    found = hashlib.sha256()
    for path in sorted(files):
        found.update(f"{path}\0{len(files[path])}\0".encode() + files[path])
    return found.hexdigest()


_NO_PRIVILEGES = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_UNPRIVILEGED_USER = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
IMPORTING = ("worker", "profiler", "scorer")  # models, and functions with libraries of their own
_ONE_CORE = {"requests": {"cpu": "1", "memory": "1Gi"}}
_LIGHT = {"requests": {"cpu": "250m", "memory": "256Mi"}}


def mounted(file: PipelineFile) -> str:
    """Return the path of the pipeline file in a pod."""
    return f"{MOUNTED}/{file.path.name}"


def user_of(pipeline: Pipeline, role: str) -> str:
    """Return the Kafka user of a role, as `headrace acls` has it."""
    return f"{pipeline.name}-{role}"


def _environment(pipeline: Pipeline, role: str, options: KubernetesOptions) -> list[dict[str, Any]]:
    said = {
        "HEADRACE_BOOTSTRAP": options.bootstrap,
        "HEADRACE_HOME": HOME,
        "HEADRACE_LOG_FORMAT": "json",
        "HEADRACE_METRICS_PORT": str(METRICS_PORT),
        "HEADRACE_METRICS_HOST": "0.0.0.0",
    }
    pod_name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    found: list[dict[str, Any]] = [{"name": k, "value": v} for k, v in said.items()]
    if options.strimzi:
        user = user_of(pipeline, role)
        found += [
            {"name": "HEADRACE_KAFKA_CONFIG", "value": PROPERTIES},
            {"name": "KAFKA_USER", "value": user},
            {
                "name": "KAFKA_PASSWORD",
                "valueFrom": {"secretKeyRef": {"name": user, "key": "password"}},
            },
        ]
    return [*found, pod_name]


def _probes() -> dict[str, Any]:
    # Liveness never asks the broker: a broker that is away must not restart every pod.
    live = {"httpGet": {"path": "/livez", "port": "metrics"}, "periodSeconds": PROBED_EVERY_S}
    ready = {"httpGet": {"path": "/readyz", "port": "metrics"}, "periodSeconds": PROBED_EVERY_S}
    return {
        "startupProbe": {**live, "failureThreshold": LOADS_WITHIN_S // PROBED_EVERY_S},
        "livenessProbe": {**live, "failureThreshold": 3, "timeoutSeconds": 3},
        "readinessProbe": {**ready, "timeoutSeconds": 3},
    }


def _mounts(options: KubernetesOptions, secrets: Iterable[str]) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [
        {"name": "pipeline", "mountPath": MOUNTED, "readOnly": True},
        {"name": "home", "mountPath": HOME},
        {"name": "scratch", "mountPath": "/tmp"},
    ]
    if options.strimzi:
        folder = str(PurePosixPath(PROPERTIES).parent)
        mounts += [
            {"name": "client", "mountPath": folder, "readOnly": True},
            {"name": "authority", "mountPath": AUTHORITY, "readOnly": True},
        ]
    mounts += [
        {"name": name, "mountPath": f"{SECRETS}/{name}", "readOnly": True} for name in secrets
    ]
    return mounts


def _volumes(of: Installation, secrets: Mapping[str, str]) -> list[dict[str, Any]]:
    name, options = of.pipeline, of.options
    folder: dict[str, Any] = {"persistentVolumeClaim": {"claimName": options.claim}}
    if not options.claim:
        items = [{"key": key_of(path), "path": path} for path in of.files]
        folder = {"configMap": {"name": f"{name}-pipeline", "items": items}}
    volumes: list[dict[str, Any]] = [
        {"name": "pipeline", **folder},
        {"name": "home", "emptyDir": {}},
        {"name": "scratch", "emptyDir": {}},
    ]
    if options.strimzi:
        authority = f"{options.strimzi}-cluster-ca-cert"
        volumes += [
            {"name": "client", "configMap": {"name": f"{name}-client"}},
            {"name": "authority", "secret": {"secretName": authority}},
        ]
    volumes += [
        {"name": name, "secret": {"secretName": secret}} for name, secret in secrets.items()
    ]
    return volumes

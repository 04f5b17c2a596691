"""A pipeline's objects for Kubernetes, from its file. Pure.

Processes that divide partitions have a Deployment each, which replaces its pod only after the old
one has ended. The workers of one device are a StatefulSet, so that their names stay. Consumer lag
is no measure of load, since work is dropped or refused instead of queued: workers are scaled to the
number that the control app wants.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import (
    Role,
    cluster_workers,
    file_roles,
    rented_worker,
    tier_devices,
)
from headrace.errors import PipelineError
from headrace.kubernetes import keda, strimzi
from headrace.kubernetes.folder import config_data
from headrace.kubernetes.pods import (
    METRICS_PORT,
    SECRETS,
    Installation,
    KubernetesOptions,
    device_part,
    labels,
    mounted,
    pod,
    workers_name,
)

GUARDED = ("ingress", "egress", "gateway")  # with a budget for evictions
GATEWAY_PORTS = {"http": 8000, "grpc": 8001}
DASHBOARD_PORT = 8080
# Between a gateway's removal from its Service and its SIGTERM: nodes learn of the removal.
LEAVES_S = 5
# The arguments for a secret, by its folder.
SECRET_ARGUMENTS = {
    "tokens": ("--tokens", f"{SECRETS}/tokens/tokens"),
    "tls": ("--tls-certificate", f"{SECRETS}/tls/tls.crt", "--tls-key", f"{SECRETS}/tls/tls.key"),
}
_SEVERAL = {"replicas": 1, "strategy": {"type": "Recreate"}}
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # a Service's begins with a letter
MOST = 63  # characters of a label, and of a name in DNS
# A set of pods is known by a label with its name and a hash: with a longer name it has no pods.
MOST_BY_KIND = {"StatefulSet": MOST - len("-0123456789"), "KafkaTopic": 253}
_PART = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_OBJECT_NAME = re.compile(rf"{_PART}(\.{_PART})*")


def manifests(
    file: PipelineFile, files: Mapping[str, bytes], options: KubernetesOptions
) -> list[dict[str, Any]]:
    """Return the objects in the order in which they are applied; ``files`` are the folder's.

    Raises ``PipelineError`` for a cluster that cannot run in pods, and for a name that Kubernetes
    refuses.
    """
    _check_name(file)
    of = Installation(file, files, options)
    made = [
        *([] if options.claim else [_folder(of)]),
        *(strimzi.objects(of) if options.strimzi else []),
        *_processes(of),
        *_workers(of),
        *_worker_services(of),
        *_gateway(of),
        *_dashboard(of),
        *_budgets(of),
        *([_pod_monitor(of)] if options.pod_monitor else []),
        *(keda.objects(of) if options.keda else []),
    ]
    _check_object_names(made, file.path)
    return made


def _check_name(file: PipelineFile) -> None:
    name = file.pipeline.name
    if not _NAME.fullmatch(name):
        raise PipelineError(
            f"{file.path}: the name {name!r} cannot begin those of Kubernetes' objects; begin it "
            "with a letter, and end it with a letter or digit"
        )


def _folder(of: Installation) -> dict[str, Any]:
    data = config_data(dict(of.files))
    return of.made("v1", "ConfigMap", f"{of.pipeline}-pipeline", "pipeline", **data)


def _processes(of: Installation) -> Iterator[dict[str, Any]]:
    for role in file_roles(of.file):
        if role.kind not in ("worker", "gateway", "dashboard"):
            command = [role.kind, mounted(of.file), *_without_port(role)]
            template = pod(of, role.kind, command)
            yield _deployment(of, role.name, role.kind, template, **_SEVERAL)


def _without_port(role: Role) -> tuple[str, ...]:
    """Return a role's arguments without those of the metrics port, which the environment sets."""
    arguments = role.arguments
    return arguments if role.metrics_port is None else arguments[:-2]


def _deployment(
    of: Installation, name: str, role: str, template: dict[str, Any], **more: Any
) -> dict[str, Any]:
    chosen = {**labels(of.pipeline, role), "headrace/process": name}
    template["metadata"]["labels"] |= chosen
    spec = {**more, "selector": {"matchLabels": chosen}, "template": template}
    called = f"{of.pipeline}-{device_part(name)}"
    return of.made("apps/v1", "Deployment", called, role, spec=spec)


# ---------------------------------------------------------------------- workers


def _workers(of: Installation) -> Iterator[dict[str, Any]]:
    for device, processes in _devices(of).items():
        yield _worker(of, device, processes)


def _worker_services(of: Installation) -> Iterator[dict[str, Any]]:
    """Yield the headless Services of the workers' StatefulSets, which give each worker's pod a name
    in DNS."""
    for device in _devices(of):
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _workers_of(of.pipeline, device),
            "ports": [{"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}],
        }
        yield of.made("v1", "Service", workers_name(of.pipeline, device), "worker", spec=spec)


def _devices(of: Installation) -> dict[str, list[Role]]:
    """Return the devices, device types and tiers that have a StatefulSet, with their processes."""
    cluster = of.file.cluster
    if cluster.tiers:
        every = {tier.name: tier_devices(tier) for tier in cluster.tiers}
        return {name: processes for name, processes in every.items() if processes}
    counts = {each.name: 0 for each in cluster.types if of.options.keda} | dict(cluster.devices)
    return {device: cluster_workers(cluster, device, count) for device, count in counts.items()}


def _workers_of(pipeline: str, device: str) -> dict[str, str]:
    return {**labels(pipeline, "worker"), "headrace/device": device_part(device)}


def _worker(of: Installation, device: str, processes: list[Role]) -> dict[str, Any]:
    file, options, pipeline = of.file, of.options, of.pipeline
    host = file.cluster.host_device(device)
    if host.startswith("cuda") and host not in ("cuda", "cuda:0"):
        raise PipelineError(
            f"{file.path}: device {host} cannot be a pod's, which sees its only GPU as cuda:0; "
            "count its workers under cuda:0 or a device type"
        )
    first = processes[0] if processes else rented_worker(device, 0)
    count = first.arguments[first.arguments.index("--device") :]
    count = count[: count.index("--metrics-port")] if "--metrics-port" in count else count
    command = ["worker", mounted(file), "--name", "$(POD_NAME)", *count]
    template = pod(of, "worker", command, resources=_resources(file, device, host))
    if host.startswith("cuda"):
        template["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    chosen = _workers_of(pipeline, device)
    template["metadata"]["labels"] |= chosen
    scaled = options.keep_replicas or bool(options.keda and file.cluster.type_of(device))
    name = workers_name(pipeline, device)
    spec = {
        **_replicas(len(processes), scaled=scaled),
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": chosen},
        "template": template,
    }
    return of.made("apps/v1", "StatefulSet", name, "worker", spec=spec)


def _replicas(count: int, *, scaled: bool) -> dict[str, int]:
    """Return the number of pods; nothing if ``scaled``: ``kubectl apply`` would reset the number
    that an autoscaler has set. A new object without a number has one pod."""
    return {} if scaled else {"replicas": count}


def _resources(file: PipelineFile, device: str, host: str) -> dict[str, dict[str, str]]:
    cpu = "250m" if host == "emulated" else "1"
    bytes_of = dict(file.cluster.memory).get(device)
    memory = str(bytes_of) if bytes_of and not host.startswith("cuda") else "1Gi"
    limits = {"limits": {"nvidia.com/gpu": "1"}} if host.startswith("cuda") else {}
    return {"requests": {"cpu": cpu, "memory": memory}, **limits}


# ---------------------------------------------------------------------- gateway, page, budgets


def _gateway(of: Installation) -> Iterator[dict[str, Any]]:
    file, options, gateway = of.file, of.options, of.file.cluster.gateway
    asked = {"tokens": options.gateway_tokens, "tls": options.gateway_tls}
    secrets = {folder: secret for folder, secret in asked.items() if secret}
    if gateway is None:
        for secret in secrets.values():
            raise PipelineError(
                f"{file.path}: the secret {secret!r} is for a gateway, and the file has none; add "
                "cluster.gateway: {processes: 1}, or leave the option out"
            )
        return
    ports = GATEWAY_PORTS if gateway.grpc_port is not None else {"http": GATEWAY_PORTS["http"]}
    command = ["gateway", mounted(file), "--host", "0.0.0.0"]
    command += [] if "grpc" in ports else ["--grpc-port", "none"]
    for folder in secrets:
        command += SECRET_ARGUMENTS[folder]
    open_ports = {"metrics": METRICS_PORT, **ports}
    template = pod(of, "gateway", command, ports=open_ports, secrets=secrets)
    template["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": LEAVES_S}}}
    replicas = _replicas(gateway.processes, scaled=options.keep_replicas)
    yield _deployment(of, "gateway", "gateway", template, **replicas)
    opened = [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()]
    spec = {"selector": labels(of.pipeline, "gateway"), "ports": opened}
    yield of.made("v1", "Service", f"{of.pipeline}-gateway", "gateway", spec=spec)


def _dashboard(of: Installation) -> Iterator[dict[str, Any]]:
    """Yield the dashboard of a file that has one, on its command's default port: it listens on its
    pod's loopback, which forwarded ports reach and probes do not."""
    if of.file.cluster.dashboard_port is not None:
        command, ports = ["dashboard", mounted(of.file)], {"page": DASHBOARD_PORT}
        template = pod(of, "dashboard", command, ports=ports)
        yield _deployment(of, "dashboard", "dashboard", template, replicas=1)


def _budgets(of: Installation) -> Iterator[dict[str, Any]]:
    for role in GUARDED:
        if role != "gateway" or of.file.cluster.gateway is not None:
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels(of.pipeline, role)}}
            name = f"{of.pipeline}-{role}"
            yield of.made("policy/v1", "PodDisruptionBudget", name, role, spec=spec)


def _pod_monitor(of: Installation) -> dict[str, Any]:
    chosen = {"app.kubernetes.io/name": "headrace", "app.kubernetes.io/instance": of.pipeline}
    spec = {"selector": {"matchLabels": chosen}, "podMetricsEndpoints": [{"port": "metrics"}]}
    return of.made("monitoring.coreos.com/v1", "PodMonitor", of.pipeline, "metrics", spec=spec)


def _check_object_names(objects: Sequence[dict[str, Any]], path: Path) -> None:
    """Check the names of all objects of the pipeline file at ``path``.

    Names of devices, types, tasks and tiers are parts of them. Raises ``PipelineError``.
    """
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    for (kind, name), count in Counter(named).items():
        most = MOST_BY_KIND.get(kind, MOST)
        if count > 1:
            raise PipelineError(
                f"{path}: {count} objects would be the {kind} {name}; small and capital letters, "
                "'.', '_' and '-' are the same there: rename a device type or task"
            )
        if len(name) > most:
            raise PipelineError(
                f"{path}: the name of the {kind} {name} has {len(name)} characters, above the "
                f"{most} that Kubernetes takes; shorten that of the pipeline, device type or task"
            )
        if not _OBJECT_NAME.fullmatch(name):
            raise PipelineError(
                f"{path}: Kubernetes takes no {kind} with the name {name}, whose parts must begin "
                "and end with a letter or digit; rename the device type or task"
            )


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _text)


def manifest_text(objects: Iterable[dict[str, Any]]) -> str:
    """Return objects as readable YAML: keys in their order, long texts as blocks."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False)

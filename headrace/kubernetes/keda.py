"""KEDA's objects: scale the workers of each device type to the number that the control app wants.

Prometheus has the metric ``headrace_workers_wanted`` from the control app. The control app decides
slowly and within the budget, so KEDA follows it without stabilisation of its own. While the metric
is missing, the numbers stay. So a new StatefulSet, whose manifest has no number, has Kubernetes'
default of one pod until the control app wants a number, which may be 0.
"""

from math import floor
from typing import Any

from control.policies.kairos.device_mixes import CENT
from headrace.config.cluster import NOBODY, DeviceType
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import PipelineError
from headrace.kubernetes.pods import KubernetesOptions, metadata, workers_name

POLL_S = 5  # between two readings of the metric
COOL_S = 5  # from a number of 0 until no pod runs
MISSED = 3  # readings in a row


def objects(file: PipelineFile, options: KubernetesOptions) -> list[dict[str, Any]]:
    """Return a ScaledObject for each device type.

    Raises ``PipelineError`` if ``cluster.scale`` is off, so that no number is decided.
    """
    if file.cluster.scale == NOBODY:
        raise PipelineError(
            f"{file.path}: KEDA scales the workers of cluster.types as the control app wants it; "
            "add a line scale: supervisor to the cluster, or leave out --keda"
        )
    return [_scaled(file, each, options) for each in file.cluster.types]


def _scaled(file: PipelineFile, of: DeviceType, options: KubernetesOptions) -> dict[str, Any]:
    pipeline = file.pipeline.name
    target = workers_name(pipeline, of.name)
    query = f'max(headrace_workers_wanted{{pipeline="{pipeline}",type="{of.name}"}})'
    down = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": metadata(target, "worker", pipeline, options),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": target},
            "pollingInterval": POLL_S,
            "cooldownPeriod": COOL_S,
            "minReplicaCount": 0,
            "maxReplicaCount": _most(file, of),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
            "fallback": {
                "failureThreshold": MISSED, "replicas": 1, "behavior": "currentReplicas",
            },
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": options.keda,
                        "query": query,
                        "threshold": "1",
                        "ignoreNullValues": "false",
                    },
                }
            ],
        },
    }  # fmt: skip


def _most(file: PipelineFile, of: DeviceType) -> int:
    """Return the most devices of a type, by its own limit and the budget."""
    budget = file.cluster.budget or 0.0
    afford = floor((budget + CENT) / of.price) if of.price > 0 else of.most or 0
    return max(1, afford if of.most is None else min(afford, of.most))

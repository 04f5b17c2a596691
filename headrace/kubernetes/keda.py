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
from headrace.kubernetes.pods import Installation, workers_name

POLL_S = 5  # between two readings of the metric
COOL_S = 5  # from a number of 0 until no pod runs
MISSED = 3  # readings in a row


def objects(of: Installation) -> list[dict[str, Any]]:
    """Return a ScaledObject for each device type.

    Raises ``PipelineError`` if ``cluster.scale`` is off, so that no number is decided.
    """
    if of.file.cluster.scale == NOBODY:
        raise PipelineError(
            f"{of.file.path}: KEDA scales the workers of cluster.types as the control app wants "
            "it; add a line scale: supervisor to the cluster, or leave out --keda"
        )
    return [_scaled(of, each) for each in of.file.cluster.types]


def _scaled(of: Installation, type_: DeviceType) -> dict[str, Any]:
    pipeline = of.pipeline
    target = workers_name(pipeline, type_.name)
    query = f'max(headrace_workers_wanted{{pipeline="{pipeline}",type="{type_.name}"}})'
    down = {"stabilizationWindowSeconds": 0}
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": of.options.keda,
            "query": query,
            "threshold": "1",
            "ignoreNullValues": "false",
        },
    }
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": target},
        "pollingInterval": POLL_S,
        "cooldownPeriod": COOL_S,
        "minReplicaCount": 0,
        "maxReplicaCount": _most(of.file, type_),
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": down}}},
        "fallback": {"failureThreshold": MISSED, "replicas": 1, "behavior": "currentReplicas"},
        "triggers": [trigger],
    }
    return of.made("keda.sh/v1alpha1", "ScaledObject", target, "worker", spec=spec)


def _most(file: PipelineFile, of: DeviceType) -> int:
    """Return the most devices of a type, by its own limit and the budget."""
    budget = file.cluster.budget or 0.0
    afford = floor((budget + CENT) / of.price) if of.price > 0 else of.most or 0
    return max(1, afford if of.most is None else min(afford, of.most))

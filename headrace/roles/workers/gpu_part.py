"""The part of a GPU that a worker may use, for NVIDIA's Multi-Process Service (MPS) to keep.

Where MPS runs, the driver limits a process to a part of the GPU's processors, which it reads from
``PERCENTAGE`` when the process first uses the GPU. Without MPS it ignores the variable.
"""

from collections.abc import Mapping

from headrace.config.cluster import Cluster

PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


def mps_variables(cluster: Cluster, device: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables to add to the environment ``env`` of a worker on ``device``; a
    percentage that is there stays."""
    percentage = cluster.gpu_percentage(device)
    if percentage is None or PERCENTAGE in env:
        return {}
    return {PERCENTAGE: str(percentage)}

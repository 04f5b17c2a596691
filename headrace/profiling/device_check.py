"""Check that this machine has the devices to measure."""

from collections.abc import Sequence

from headrace.config.cluster import Cluster
from headrace.errors import PipelineError
from headrace.roles.profiling.present_devices import check_device


def check_devices(
    cluster: Cluster, devices: Sequence[str], cuda_devices: int | None = None
) -> None:
    """Raise ``PipelineError`` for a device that is misspelt or that this machine lacks.

    ``cuda_devices``: CUDA devices of this machine; None: counted if a CUDA device is named.
    """
    for name in devices:
        check_device(name, cluster.host_device(name), cuda_devices)


def check_memory_known(cluster: Cluster, devices: Sequence[str], torch: bool) -> None:
    """Raise ``PipelineError`` for a GPU whose memory is limited but cannot be measured: that takes
    ``torch``, whatever library runs the model."""
    for name in devices:
        if name in dict(cluster.memory) and cluster.host_device(name) != "cpu" and not torch:
            raise PipelineError(
                f"the memory of {name!r} is limited, but without torch nobody knows what a model "
                "takes of it; run pip install 'headrace[torch]', or remove the limit"
            )

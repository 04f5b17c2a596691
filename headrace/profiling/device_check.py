"""Check that this machine has the devices to measure and that the result can be written."""

import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path

from headrace.config.cluster import Cluster
from headrace.errors import PipelineError
from operators.models.libraries import cuda_index, library

_NVIDIA = re.compile(r"nvidia\d+")


def check_devices(
    cluster: Cluster, devices: Sequence[str], cuda_devices: int | None = None
) -> None:
    """Raise ``PipelineError`` for a device that is misspelt or that this machine lacks.

    ``cuda_devices``: CUDA devices of this machine; None: counted if a CUDA device is named.
    """
    for name in devices:
        host = cluster.host_device(name)
        if host == "cpu":
            continue
        if not re.fullmatch(r"cuda:\d+", host):
            raise PipelineError(
                f"device {name!r} is none; devices are cpu and cuda:N, such as cuda:0"
            )
        count = cuda_count() if cuda_devices is None else cuda_devices
        if cuda_index(host) >= count:
            raise PipelineError(
                f"device {name!r} is not here: this machine has {count} CUDA devices; "
                "name one it has, as in --device cpu"
            )


def check_memory_known(cluster: Cluster, devices: Sequence[str], torch: bool) -> None:
    """Raise ``PipelineError`` for a GPU whose memory is limited but cannot be measured: that takes
    ``torch``, whatever library runs the model."""
    for name in devices:
        if name in dict(cluster.memory) and cluster.host_device(name) != "cpu" and not torch:
            raise PipelineError(
                f"the memory of {name!r} is limited, but without torch nobody knows what a model "
                "takes of it; run pip install 'headrace[torch]', or remove the limit"
            )


def cuda_count() -> int:
    """Return the number of CUDA devices: by torch if installed, else by the driver's nodes."""
    if importlib.util.find_spec("torch") is not None:
        return int(library("torch").cuda.device_count())
    found = Path("/dev").glob("nvidia*")
    return sum(1 for path in found if _NVIDIA.fullmatch(path.name))


def check_place(out: Path) -> None:
    """Raise ``PipelineError`` if ``out`` cannot be written; called before measuring."""
    folder = out.resolve().parent
    if not folder.is_dir():
        raise PipelineError(f"{out}: the folder {folder} does not exist; create it")
    if out.is_dir() or not os.access(folder, os.W_OK):
        raise PipelineError(f"{out} cannot be written; name a file in a folder that you may write")

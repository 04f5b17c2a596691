"""The devices of this machine on which models run."""

import importlib.util
import re
from pathlib import Path

from headrace.errors import PipelineError
from operators.models.libraries import cuda_index, library

_NVIDIA = re.compile(r"nvidia\d+")


def check_device(name: str, host: str, cuda_devices: int | None = None) -> None:
    """Raise ``PipelineError`` if ``host``, the device of this machine for ``name``, is misspelt or
    absent.

    ``cuda_devices``: CUDA devices of this machine; None: counted if a CUDA device is named.
    """
    if host == "cpu":
        return
    if not re.fullmatch(r"cuda:\d+", host):
        raise PipelineError(f"device {name!r} is none; devices are cpu and cuda:N, such as cuda:0")
    count = cuda_count() if cuda_devices is None else cuda_devices
    if cuda_index(host) >= count:
        raise PipelineError(
            f"device {name!r} is not here: this machine has {count} CUDA devices; "
            "name one it has, as in --device cpu"
        )


def cuda_count() -> int:
    """Return the number of CUDA devices: by torch if installed, else by the driver's nodes."""
    if importlib.util.find_spec("torch") is not None:
        return int(library("torch").cuda.device_count())
    found = Path("/dev").glob("nvidia*")
    return sum(1 for path in found if _NVIDIA.fullmatch(path.name))

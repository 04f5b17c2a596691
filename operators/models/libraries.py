"""Optional libraries, imported on first use, so that installations without them still work."""

import importlib
from typing import Any

from operators.models.model_errors import BadDevice, MissingExtra

EXTRAS = {
    "torch": "torch",
    "torchvision": "torch",
    "transformers": "torch",
    "safetensors": "torch",
    "onnxruntime": "onnx",
    "grpc": "gateway",
    "google": "gateway",
    "PIL": "postcode",
    "sklearn": "postcode",
    "jsonschema": "schema",
}


def library(name: str) -> Any:
    """Import a module; raise ``MissingExtra`` if its extra is not installed."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing(error) from error


def missing(error: ModuleNotFoundError) -> Exception:
    """Return ``MissingExtra`` for a module that an extra installs, else ``error`` itself."""
    wanted = (error.name or "").partition(".")[0]
    if wanted not in EXTRAS:
        return error
    return MissingExtra(f"{wanted} is not installed; run pip install 'headrace[{EXTRAS[wanted]}]'")


def torch_on(device: str) -> Any:
    """Return torch, limited to one thread; raise ``BadDevice`` if ``device`` does not exist.

    ``device`` is "cpu" or "cuda:N". A worker is the unit of parallelism: a profile measured with
    one thread holds for any number of workers on the machine.
    """
    torch = library("torch")
    torch.set_num_threads(1)
    if device == "cpu":
        return torch
    index = cuda_index(device)
    if index >= torch.cuda.device_count():
        raise BadDevice(
            f"device {device!r} is not here: torch sees {torch.cuda.device_count()} CUDA devices; "
            f"name one of those or cpu in the cluster section"
        )
    return torch


def cuda_index(device: str) -> int:
    """Return N of "cuda:N"; raise ``BadDevice`` for anything else."""
    kind, _, index = device.partition(":")
    if kind != "cuda" or not index.isdecimal():
        raise BadDevice(f"device is {device!r}; a model runs on cpu or cuda:N, such as cuda:0")
    return int(index)

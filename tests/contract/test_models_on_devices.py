"""Torch models run on a device other than the CPU.

PyTorch's ``meta`` device replaces a missing GPU. Its tensors are not on the CPU, operations refuse
to mix the two, and its tensors cannot be copied back. A batch that fails only at that last copy has
therefore run on the device from end to end: weights, inputs and intermediate tensors.
"""

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.user_functions import load_workload
from operators.models import torch_module, torchvision_model, transformers_model
from operators.models.libraries import library
from operators.models.loading import load_operator
from schemas.pipeline import Variant

pytestmark = pytest.mark.models

POSTCODE = Path(__file__).parents[2] / "examples" / "postcode" / "pipeline.yaml"
ON_TORCH = [
    "locate/net",
    "locate/deep",
    "read/cnn",
    "read/vit",
    "read/mobilenet",
    "read/committee",
]


@pytest.fixture
def any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make torch accept any device name, present or not."""
    for module in (torch_module, torchvision_model, transformers_model):
        monkeypatch.setattr(module, "torch_on", lambda _device: library("torch"))


def variant(key: str) -> Variant:
    variants = (v for task in read_pipeline_file(POSTCODE).pipeline.tasks for v in task.variants)
    return next(v for v in variants if v.key == key)


def inputs(task: str) -> list[Any]:
    workload = load_workload(read_pipeline_file(POSTCODE))
    found, _ = workload.task_inputs(task, 3, np.random.default_rng(0))
    return list(islice(found, 3))


@pytest.mark.usefixtures("any_device")
@pytest.mark.parametrize("key", ON_TORCH)
def test_a_batch_runs_wholly_on_the_named_device(key: str) -> None:
    operator: Any = load_operator(variant(key))
    operator.load("meta")
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        operator.predict(inputs(key.partition("/")[0]))


def test_the_list_has_every_torch_variant() -> None:
    tasks = read_pipeline_file(POSTCODE).pipeline.tasks
    known = [v for task in tasks for v in task.variants]
    assert [v.key for v in known if "torch" in getattr(load_operator(v), "libraries", ())] == (
        ON_TORCH
    )

"""The device that `headrace worker --device` names."""

from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from headrace.roles.workers.worker_models import worker_devices

EXAMPLE = Path(__file__).parents[5] / "examples" / "postcode"


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("pipeline", "cpu"),
        ("pipeline", "cuda:3"),
        ("pipeline", "emulated"),
        ("sheets", "quarter"),
        ("planned", "scan@handheld"),
    ],
)
def test_a_worker_reports_the_device_or_type_that_it_was_given(name: str, device: str) -> None:
    file = read_pipeline_file(EXAMPLE / f"{name}.yaml")
    assert worker_devices(file, "more", device, 2) == {"more-0": device, "more-1": device}


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("pipeline", "gpu"),
        ("pipeline", "cuda"),
        ("pipeline", "quarter"),
        ("pipeline", "{}"),
        ("sheets", "quater"),
        ("planned", "scan@handhold"),
    ],
)
def test_a_worker_on_a_misspelt_device_does_not_start(name: str, device: str) -> None:
    with pytest.raises(PipelineError) as refused:
        worker_devices(read_pipeline_file(EXAMPLE / f"{name}.yaml"), "more", device, 1)
    assert str(refused.value) == (
        f"--device: '{device}' is no device; devices are cpu, cuda:0 and so on, emulated"
    )

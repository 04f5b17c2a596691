"""Device types are profiled at their share of the device of this machine that runs them."""

from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from headrace.profiling.device_profiling import real_devices
from headrace.profiling.variant_process import loaded_operator
from headrace.roles.workers.shared_cpu import PaidOperator
from tests.typed_files import RANK, a_typed_file

OPERATOR = """\
class Loaded:
    def load(self, device):
        assert device == "cpu", device
    def predict(self, batch):
        return batch
"""


def test_a_type_is_loaded_on_its_device_and_keeps_to_its_share(tmp_path: Path) -> None:
    (tmp_path / "of_a_type.py").write_text(OPERATOR, encoding="utf-8")
    text = RANK.replace("slow: {device: emulated", "slow: {device: cpu, share: 0.25")
    text = text.replace("gpu: {device: emulated", "gpu: {device: cpu")
    text = text.replace(
        'operator: "operators.models.python:Python", arguments: {function: "builtins:bytes"}',
        'operator: "of_a_type:Loaded"',
    )
    file = read_pipeline_file(a_typed_file(tmp_path, text))
    variant = file.pipeline.tasks[0].variants[0]
    assert isinstance(loaded_operator(file, variant, "slow"), PaidOperator)
    whole = loaded_operator(file, variant, "gpu")
    assert not isinstance(whole, PaidOperator)
    assert whole.predict([b"1"]) == [b"1"]


def test_an_emulated_type_is_not_profiled(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))
    with pytest.raises(PipelineError, match="cannot be profiled"):
        real_devices(file.cluster, ("gpu",))

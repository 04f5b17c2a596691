"""The committed profile belongs to the committed weights, and a mismatch is detected."""

import shutil
from pathlib import Path

import pytest

from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.errors import PipelineError

EXAMPLE = Path(__file__).parents[3] / "examples" / "postcode"


def test_every_variant_was_profiled_with_the_committed_weights() -> None:
    file = read_pipeline_file(EXAMPLE / "pipeline.yaml")
    measured = {(entry.task, entry.variant) for entry in load_profile(file).entries}
    assert measured == {(v.task, v.name) for task in file.pipeline.tasks for v in task.variants}


def test_a_gpu_has_every_variant_that_runs_there() -> None:
    file = read_pipeline_file(EXAMPLE / "gpu.yaml")
    table = load_profile(file)
    measured = {entry.name for entry in table.entries}
    variants = [v for task in file.pipeline.tasks for v in task.variants]
    assert measured | set(table.left_out) == {f"{v.key} on cuda:0" for v in variants}
    assert set(table.left_out) == {"read/mlp on cuda:0", "read/forest on cuda:0"}


@pytest.mark.parametrize("name", ["sheets.yaml", "sheets-gpu.yaml"])
def test_sheets_were_profiled_on_every_type_up_to_the_largest(name: str) -> None:
    file = read_pipeline_file(EXAMPLE / name)
    largest = {entry.device: entry.latency[-1].batch for entry in load_profile(file).entries}
    assert file.pipeline.size is not None
    assert largest == {each.name: file.pipeline.size.most for each in file.cluster.types}


def test_the_variants_span_ten_points_of_accuracy_and_a_factor_of_five_in_cost() -> None:
    table = load_profile(read_pipeline_file(EXAMPLE / "pipeline.yaml"))
    for task in ("locate", "read"):
        entries = [entry for entry in table.entries if entry.task == task]
        accuracies = [entry.accuracy for entry in entries]
        alone = [entry.latency[0].p50_s for entry in entries]  # one item, the median run
        assert max(accuracies) - min(accuracies) >= 0.10, task
        assert max(alone) / min(alone) >= 5.0, task


def test_other_weights_are_distinguished_from_the_profiled_ones(tmp_path: Path) -> None:
    copy = tmp_path / "postcode"
    shutil.copytree(EXAMPLE, copy)
    weights = next((copy / "weights").glob("read-*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(PipelineError, match="measured with other weights"):
        load_profile(read_pipeline_file(copy / "pipeline.yaml"))

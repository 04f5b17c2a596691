"""A pipeline file with references: roles read its lock, and its signature must match the models."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.cli.main import run
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.profile_files import load_profile
from headrace.errors import PipelineError
from headrace.fidelity.variant_file import as_asked
from headrace.kubernetes.folder import folder_files
from tests.unit.headrace.model_registry.registries import file_store, model_folder

CHAMPION = "models:/reader@champion"


def a_file(folder: Path, arguments: dict[str, Any] | None = None, **more: Any) -> Path:
    read = {"operator": "operators.models.onnx_model:OnnxModel",
            "arguments": {"weights": CHAMPION, **(arguments or {})}}  # fmt: skip
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({
        "name": "p", "slo": "1s", "input": "avro", "cluster": {"devices": {"cpu": 1}},
        "tasks": {"read": {"variants": {"onnx": read}}}, **more,
    }))  # fmt: skip
    return path


def signature(inputs: list[int], outputs: list[int], datatype: str = "FP32") -> dict[str, Any]:
    return {
        "inputs": {"image": {"datatype": datatype, "shape": inputs}},
        "outputs": {"scores": {"datatype": "FP32", "shape": outputs}},
    }


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = file_store(tmp_path / "mlruns", str(model_folder(tmp_path / "model")))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(made))
    return made


def locked(path: Path) -> PipelineFile:
    assert run(["resolve", str(path)]) == 0
    return read_pipeline_file(path)


def test_the_lock_alone_is_read_once_a_reference_is_resolved(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_file(tmp_path)
    with pytest.raises(PipelineError, match=r"pipeline.yaml:\d+: .*weights names a model that "
                       "pipeline.lock lacks; run `headrace resolve pipeline.yaml`"):  # fmt: skip
        read_pipeline_file(path)
    locked(path)
    assert capsys.readouterr().out == f"{CHAMPION}  version 3 (locked: none)\n"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    file = read_pipeline_file(path)
    weights = Path(str(file.pipeline.tasks[0].variants[0].arguments["weights"]))
    assert weights.read_text() == "weights"
    assert weights.is_relative_to(tmp_path / "pipeline.models")
    assert {"pipeline.lock", str(weights.relative_to(tmp_path))} <= set(folder_files(file))


def test_a_judged_run_under_another_policy_has_the_models_of_the_lock(
    store: Path, tmp_path: Path
) -> None:
    """Its file used to have no lock, so that its roles did not start."""
    fast = {"kind": "static", "replicas": {"read/onnx": 1}}
    file = locked(a_file(tmp_path, policies={"fast": fast}))
    before = set(tmp_path.iterdir())
    with as_asked(file, "fast") as found:
        assert found.path != file.path
        assert found.models == file.models
        assert found.pipeline.tasks == file.pipeline.tasks
    assert set(tmp_path.iterdir()) == before


def test_a_copy_that_is_gone_or_changed_is_refused(store: Path, tmp_path: Path) -> None:
    path = a_file(tmp_path)
    file = locked(path)
    copy = tmp_path / file.models[0].path
    copy.write_text("WEIGHTS")
    with pytest.raises(PipelineError, match="is not the file that was locked"):
        load_profile(read_pipeline_file(path))
    copy.unlink()
    with pytest.raises(PipelineError, match="that is not there; run `headrace resolve"):
        read_pipeline_file(path)


def test_check_says_that_an_alias_has_moved(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_file(tmp_path)
    locked(path)
    assert run(["resolve", str(path), "--check"]) == 0
    newer = file_store(tmp_path / "newer", str(tmp_path / "model"), version="4")
    (newer / "models/reader/version-4").rename(store / "models/reader/version-4")
    (store / "models/reader/aliases/champion").write_text("4")
    capsys.readouterr()
    assert run(["resolve", str(path), "--check"]) == 1
    assert capsys.readouterr().out == f"{CHAMPION}  version 4 (locked: 3)\n"
    assert read_pipeline_file(path).models[0].version == "3"
    assert locked(path).models[0].version == "4"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"signature": signature([4], [2])}, ""),
        (
            {"signature": signature([5], [2])},
            r"signature.inputs are image FP32 \[5\], but models:/",
        ),
        ({"signature": signature([4], [2], "FP64")}, "signature.inputs are image FP64"),
        ({"signature": signature([-1], [2])}, r"has pixels FP32 \[-1, 4\], the batch first"),
        ({"signature": signature([4], [3])}, "signature.outputs are scores"),
        ({"signature": signature([4], [3]), "combine": "m:f"}, ""),
        ({"signature": signature([5], [2]), "arguments": {"before": "m:f"}}, ""),
        ({"signature": signature([4], [3]), "arguments": {"after": "m:f"}}, ""),
    ],
)
def test_the_signature_is_held_to_the_model(
    changes: dict[str, Any], sentence: str, store: Path, tmp_path: Path
) -> None:
    locked(a_file(tmp_path))
    path = a_file(tmp_path, **changes)
    if sentence:
        with pytest.raises(PipelineError, match=sentence):
            read_pipeline_file(path)
    else:
        assert read_pipeline_file(path).signature is not None


def test_a_malformed_reference_is_named_with_its_line(tmp_path: Path) -> None:
    path = a_file(tmp_path, {"weights": "models:/reader"})
    with pytest.raises(PipelineError, match=r"pipeline.yaml:\d+: tasks.read.*no reference to"):
        read_pipeline_file(path)


def test_a_file_without_references_has_nothing_to_resolve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.onnx").write_text("weights")
    assert run(["resolve", str(a_file(tmp_path, {"weights": "model.onnx"}))]) == 0
    assert "nothing to resolve" in capsys.readouterr().out
    assert not (tmp_path / "pipeline.lock").exists()


def test_a_reference_that_the_file_no_longer_has_is_no_change(store: Path, tmp_path: Path) -> None:
    """``--check`` failed without a word, also after ``resolve``, which leaves the lock then."""
    locked(a_file(tmp_path))
    (tmp_path / "model.onnx").write_text("weights")
    path = a_file(tmp_path, {"weights": "model.onnx"})
    assert run(["resolve", str(path)]) == 0
    assert run(["resolve", str(path), "--check"]) == 0

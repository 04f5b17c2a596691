"""Resolving references: MLflow's file store and server, the hub's cache, and error sentences."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.errors import PipelineError, Unsuccessful
from headrace.model_registry.lock_file import LockedModel, check_intact, lock_text, read_lock
from headrace.model_registry.model_files import MOST_TEXT_BYTES
from headrace.model_registry.references import parsed_reference
from headrace.model_registry.resolving import current_versions, resolved
from headrace.model_registry.signature import Signature, TensorSpec
from tests.unit.headrace.model_registry.registries import (
    file_store,
    hub_cache,
    mlflow_server,
    model_folder,
)

CHAMPION = "models:/reader@champion"
SIGNATURE = Signature((TensorSpec("pixels", "FP32", (-1, 4)),), (TensorSpec("", "FP32", (-1, 2)),))
READABLE = "flavors: {onnx: {data: model.onnx}}"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def signed(tensors: str) -> str:
    """Return an ``MLmodel`` whose signature states these inputs and outputs."""
    return f"{READABLE}\nsignature: {{inputs: '{tensors}', outputs: '{tensors}'}}"


def resolve(texts: Sequence[str], file: Path, **env: str) -> list[LockedModel]:
    return resolved(map(parsed_reference, texts), file, env)


def test_a_file_store_gives_version_file_and_signature(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "run" / "model")
    store = file_store(tmp_path / "mlruns", f"file://{model}")
    (found,) = resolve([CHAMPION], tmp_path / "pipeline.yaml", MLFLOW_TRACKING_URI=str(store))
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert found == LockedModel(
        reference=CHAMPION, version="3", source=f"file://{model}/model.onnx",
        path=f"pipeline.models/{sha256[:16]}/model.onnx", sha256=sha256, size_bytes=7,
        signature=SIGNATURE,
    )  # fmt: skip
    assert (tmp_path / found.path).read_text() == "weights"
    assert sorted(each.name for each in (tmp_path / "pipeline.models").iterdir()) == [sha256[:16]]


@pytest.mark.parametrize("broken", ["model.onnx", "MLmodel"])
def test_a_file_that_breaks_off_is_not_locked(tmp_path: Path, broken: str) -> None:
    model, models = model_folder(tmp_path / "model"), tmp_path / "pipeline.models"
    models.mkdir()
    with mlflow_server(model, token="t", broken=broken) as server:
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": "t"}
        with pytest.raises(Unsuccessful, match=rf"{broken} cannot .* broke off 1 bytes before"):
            resolve([CHAMPION], tmp_path / "pipeline.yaml", **env)
    assert list(models.iterdir()) == []


def test_a_server_gives_what_the_file_store_does(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model")
    with mlflow_server(model, token="t") as server:
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": "t"}
        (found,) = resolve([CHAMPION], tmp_path / "pipeline.yaml", **env)
        assert current_versions([parsed_reference(CHAMPION)], env) == {CHAMPION: "3"}
        with pytest.raises(Unsuccessful, match=r"403.*check MLFLOW_TRACKING_URI and the cred"):
            current_versions([parsed_reference(CHAMPION)], {"MLFLOW_REGISTRY_URI": server})
        with pytest.raises(Unsuccessful, match="no model writer with the alias champion"):
            current_versions([parsed_reference("models:/writer@champion")], env)
        with pytest.raises(Unsuccessful, match="cannot be copied"):
            resolve(["models:/reader/3/other.onnx"], tmp_path / "pipeline.yaml", **env)
    assert (found.version, found.signature) == ("3", SIGNATURE)
    assert found.source == "mlflow-artifacts:/1/a model/model.onnx"
    with pytest.raises(Unsuccessful, match="does not answer"):
        current_versions([parsed_reference(CHAMPION)], env)


DEEP = 50_000 * "["


@pytest.mark.parametrize("answer", ["[]", "{}", '{"model_version": null}', '"3"', DEEP])
def test_a_server_that_is_no_mlflow_is_one_sentence(answer: str, tmp_path: Path) -> None:
    why = "" if answer == DEEP else r"no model_version\.version in it.*"
    with mlflow_server(tmp_path, token="t", alias=answer.encode()) as server:
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": "t"}
        with pytest.raises(Unsuccessful, match=f"{why}check MLFLOW_"):
            current_versions([parsed_reference(CHAMPION)], env)


@pytest.mark.parametrize("meta", ["", "- a", "name: reader", "source: [", "at: 2001-99-99", DEEP])
def test_a_file_store_whose_version_names_no_files_is_one_sentence(
    meta: str, tmp_path: Path
) -> None:
    store = file_store(tmp_path / "mlruns", str(tmp_path))
    (store / "models" / "reader" / "version-3" / "meta.yaml").write_text(meta)
    with pytest.raises(Unsuccessful, match=r"file store .* cannot be read"):
        current_versions([parsed_reference(CHAMPION)], {"MLFLOW_TRACKING_URI": str(store)})


def test_credentials_go_to_no_other_server(tmp_path: Path) -> None:
    model, elsewhere = model_folder(tmp_path / "model"), "mlflow-artifacts://other:5000/1/m"
    with mlflow_server(model, token="t", artifacts=elsewhere) as server:
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": "t"}
        with pytest.raises(Unsuccessful, match="passed on by other:5000, not by http://127"):
            current_versions([parsed_reference(CHAMPION)], env)


def test_a_redirect_carries_no_credentials(tmp_path: Path) -> None:
    with (
        mlflow_server(tmp_path, token="t") as other,
        mlflow_server(tmp_path, token="t", elsewhere=other) as server,
    ):
        env = {"MLFLOW_TRACKING_URI": server, "MLFLOW_TRACKING_TOKEN": "t"}
        with pytest.raises(Unsuccessful, match=r"403.*check MLFLOW_TRACKING_URI and the cred"):
            current_versions([parsed_reference(CHAMPION)], env)


@pytest.mark.parametrize(
    ("env", "text", "sentence"),
    [
        ({}, CHAMPION, "MLFLOW_TRACKING_URI is not set"),
        ({"MLFLOW_TRACKING_URI": "sqlite:///x.db"}, CHAMPION, "run `mlflow server` over it"),
        ({"MLFLOW_TRACKING_URI": "STORE"}, "models:/reader@loser", "no model reader with"),
        ({"MLFLOW_TRACKING_URI": "STORE"}, "models:/reader/4", "the version 4"),
        ({"MLFLOW_TRACKING_URI": "STORE"}, "models:/reader/3/m.onnx", "cannot be copied"),
    ],
)  # fmt: skip
def test_what_a_registry_lacks_is_one_sentence(
    env: dict[str, str], text: str, sentence: str, tmp_path: Path
) -> None:
    store = file_store(tmp_path / "mlruns", str(model_folder(tmp_path / "model")))
    given = {name: value.replace("STORE", str(store)) for name, value in env.items()}
    with pytest.raises(Unsuccessful, match=sentence) as caught:
        resolve([text], tmp_path / "pipeline.yaml", **given)
    assert "\n" not in str(caught.value)
    left = tmp_path / "pipeline.models"
    assert not left.exists() or not list(left.iterdir())


@pytest.mark.parametrize(
    ("mlmodel", "sentence"),
    [
        ("flavors: {sklearn: {pickled_model: m.pkl}}", "names no file that this reads"),
        ("flavors: {a: {data: x.onnx}, b: {data: y.onnx}}", "names files x.onnx, y.onnx"),
        ("flavors: {python_function: {data: model.pkl}}", "never pickles"),
        ("flavors: {onnx: {data: ../other/model.onnx}}", "names files ../other/model.onnx"),
        ("flavors: {onnx: {data: /etc/host.conf}}", "names files /etc/host.conf"),
        ("flavors: [", "is no YAML"),
        (f"flavors: {DEEP}", "is no YAML"),
        (signed(DEEP), "not as MLflow writes it"),
        ("created: 2001-99-99", "is no YAML"),
        ("- flavors", "is no mapping"),
        ("flavors: [onnx]", "names no file that this reads"),
        ("flavors: {onnx: model.onnx}", "names no file that this reads"),
        (signed("[1]"), "not as MLflow writes it"),
        (signed("pixels"), "not as MLflow writes it"),
        (signed('[{"type": "tensor"}]'), "not as MLflow writes it .KeyError: 'tensor-spec'"),
        (signed('[{"type": "tensor", "tensor-spec": {"dtype": "int8", "shape": "n"}}]'),
         "not as MLflow writes it"),
        (f"{READABLE}\nsignature: [1]", "not as MLflow writes it"),
    ],
)  # fmt: skip
def test_a_model_without_one_readable_file_is_refused(
    mlmodel: str, sentence: str, tmp_path: Path
) -> None:
    model = model_folder(tmp_path / "model", {"MLmodel": mlmodel})
    store = file_store(tmp_path / "mlruns", str(model))
    with pytest.raises(PipelineError, match=sentence):
        resolve([CHAMPION], tmp_path / "pipeline.yaml", MLFLOW_TRACKING_URI=str(store))


def test_a_text_that_would_fill_the_memory_is_not_read_to_its_end(tmp_path: Path) -> None:
    model = model_folder(tmp_path / "model", {"MLmodel": "#" * (MOST_TEXT_BYTES + 1)})
    store = file_store(tmp_path / "mlruns", str(model))
    with pytest.raises(Unsuccessful, match="MLmodel cannot be read: it has more than 10485760 by"):
        resolve([CHAMPION], tmp_path / "pipeline.yaml", MLFLOW_TRACKING_URI=str(store))


def test_a_store_elsewhere_wants_its_server(tmp_path: Path) -> None:
    store = file_store(tmp_path / "mlruns", "s3://bucket/model")
    with pytest.raises(Unsuccessful, match=r"lie at s3://bucket/model.*serve-artifacts"):
        resolve([CHAMPION], tmp_path / "pipeline.yaml", MLFLOW_TRACKING_URI=str(store))


@pytest.mark.thorough
def test_the_hubs_cache_gives_the_commit_offline(tmp_path: Path) -> None:
    home = tmp_path / "snapshots" / "home"  # a folder of the same name as one within the cache
    hub_cache(home, COMMIT, {"model.safetensors": b"w", "onnx/m.txt": b"xyz"})
    program = (
        "import os, sys, pathlib\n"
        "from headrace.model_registry.references import parsed_reference as parsed\n"
        "from headrace.model_registry.resolving import resolved\n"
        "found = resolved(map(parsed, sys.argv[2:]), pathlib.Path(sys.argv[1]), os.environ)\n"
        "print(*[f'{m.version} {m.size_bytes} {m.source}' for m in found], sep='\\n')\n"
    )

    def run(*texts: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "pipeline.yaml"), *texts],
            capture_output=True, text=True, check=False, cwd=Path(__file__).parents[4],
            env={"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip

    done = run("hf://org/name@main", f"hf://org/name@{COMMIT}/onnx/m.txt")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"{COMMIT} 1 hf://org/name@{COMMIT}/model.safetensors",
        f"{COMMIT} 3 hf://org/name@{COMMIT}/onnx/m.txt",
    ]
    lacking = run("hf://org/name@other")
    assert (
        "Unsuccessful: the hub's client has no model.safetensors of org/name@other from its "
        in (lacking.stderr)
    )


def test_a_lock_is_read_as_it_was_written_and_a_changed_copy_is_noticed(tmp_path: Path) -> None:
    store = file_store(tmp_path / "mlruns", str(model_folder(tmp_path / "model")))
    file = tmp_path / "pipeline.yaml"
    (model,) = resolve([CHAMPION], file, MLFLOW_TRACKING_URI=str(store))
    lock = tmp_path / "pipeline.lock"
    lock.write_text(lock_text([model]))
    assert read_lock(lock) == {CHAMPION: model}
    check_intact(model, file)
    (tmp_path / model.path).write_text("WEIGHTS")
    with pytest.raises(PipelineError, match=r"is not the file that was locked.*headrace resolve"):
        check_intact(model, file)
    lock.write_text('{"models:/reader@champion": {"version": 3}}')
    with pytest.raises(PipelineError, match="make it anew with `headrace resolve`"):
        read_lock(lock)
    assert read_lock(tmp_path / "no.lock") == {}

"""Resolve references to models in registries that MLflow wrote: a file store and its server."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import PipelineError
from operators.models.loading import load_operator
from tests.interop.environments import python_of
from tests.interop.servers import wait_until_up

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
UP_WITHIN_S = 90.0
CHAMPION = "models:/doubling@champion"

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def environment(uri: str) -> dict[str, str]:
    return {
        **os.environ, "MLFLOW_TRACKING_URI": uri, "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip


@contextmanager
def a_server(folder: Path) -> Iterator[str]:
    """Run `mlflow server`, which also serves artifacts; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        python_of("mlflow"), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
        "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
        "--artifacts-destination", str(folder / "artifacts"), "--serve-artifacts",
    ]  # fmt: skip
    with (folder / "log").open("w") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment(""))
    try:
        wait_until_up(f"http://127.0.0.1:{port}/health", running, folder / "log", UP_WITHIN_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(timeout=30)


def registered(uri: str, folder: Path) -> str:
    """Register the next version of the model; return its number."""
    python = python_of("mlflow")
    assert python.exists(), f"{python} is not there; `make interop` makes it"
    done = subprocess.run(
        [python, HERE / "mlflow_calls.py", uri],
        capture_output=True, text=True, check=False, env=environment(uri), cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def resolve(path: Path, uri: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "headrace", "resolve", str(path), *options],
        capture_output=True, text=True, check=False, env=environment(uri), cwd=ROOT,
    )  # fmt: skip


def a_file(folder: Path, size: int = 4) -> Path:
    operator = {"operator": "operators.models.onnx_model:OnnxModel",
                "arguments": {"weights": CHAMPION}}  # fmt: skip
    tensor = {"datatype": "FP32", "shape": [size]}
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump({
        "name": "doubling", "slo": "1s", "input": "avro", "cluster": {"devices": {"cpu": 1}},
        "tasks": {"double": {"variants": {"onnx": operator}}},
        "signature": {"inputs": {"numbers": tensor}, "outputs": {"doubled": tensor}},
    }))  # fmt: skip
    return path


def doubled(file: PipelineFile) -> list[float]:
    """Return the output of the file's only operator for a query."""
    operator = load_operator(file.pipeline.tasks[0].variants[0])
    operator.load("cpu")  # type: ignore[attr-defined]
    query = {"numbers": np.arange(4, dtype=np.float32)}
    (found,) = operator.predict([query])  # type: ignore[attr-defined]
    return list(map(float, found))


def exercised(uri: str, folder: Path) -> None:
    """Lock the champion, use it without a registry, and detect that another version became
    champion."""
    path = a_file(folder)
    assert registered(uri, folder) == "1"
    done = resolve(path, uri)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{CHAMPION}  version 1 (locked: none)\n"
    file = read_pipeline_file(path)
    assert doubled(file) == [0.0, 2.0, 4.0, 6.0]
    assert registered(uri, folder) == "2"
    moved = resolve(path, uri, "--check")
    assert (moved.returncode, moved.stdout) == (1, f"{CHAMPION}  version 2 (locked: 1)\n")
    assert read_pipeline_file(path).models == file.models
    with pytest.raises(PipelineError, match=r"signature.inputs are numbers FP32 \[5\]"):
        read_pipeline_file(a_file(folder, size=5))


def test_models_in_a_file_store_of_mlflow_can_be_locked(tmp_path: Path) -> None:
    exercised((tmp_path / "mlruns").as_uri(), tmp_path)


def test_models_on_an_mlflow_server_can_be_locked(tmp_path: Path) -> None:
    with a_server(tmp_path) as uri:
        exercised(uri, tmp_path)

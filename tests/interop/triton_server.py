"""Run a real Triton with two models in Python, in the environment of its wheel.

python triton_server.py FOLDER HTTP_PORT GRPC_PORT METRICS_PORT

The wheel's own way to start Triton (pytriton) fails on some Python 3.11, but the wheel contains
Triton and its Python backend.
"""

import os
import shutil
import sys
from pathlib import Path

import pytriton

MODEL = """
import sys
import time

sys.path.insert(0, "{packages}")  # the backend does not heed PYTHONPATH

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        given = triton.get_input_tensor_by_name(request, "{input}").as_numpy()
        try:
            made = {function}(given)
        except ValueError as error:
            return triton.InferenceResponse(error=triton.TritonError(str(error)))
        return triton.InferenceResponse([triton.Tensor("{output}", made)])


def doubled(numbers):
    return 2 * numbers


def loud(text):
    word = text[0][0]
    if word == b"sleep":
        time.sleep(1.0)
    if word == b"raise":
        raise ValueError("no word to shout")
    return np.array([[word.upper()]], dtype=object)
"""
CONFIG = """
name: "{name}"
backend: "python"
max_batch_size: 8
input [{{name: "{input}", data_type: {datatype}, dims: [-1]}}]
output [{{name: "{output}", data_type: {datatype}, dims: [-1]}}]
instance_group [{{kind: KIND_CPU, count: 2}}]
"""
MODELS = (
    {"name": "doubling", "input": "numbers", "output": "doubled", "datatype": "TYPE_FP32",
     "function": "doubled"},
    {"name": "shouting", "input": "text", "output": "loud", "datatype": "TYPE_STRING",
     "function": "loud"},
)  # fmt: skip


def main(folder: Path, http: str, grpc: str, metrics: str) -> None:
    release = f"{sys.version_info.major}.{sys.version_info.minor}"
    server = Path(pytriton.__file__).resolve().parent / "tritonserver"
    backends, models = folder / "backends", folder / "models"
    shutil.copytree(server / "backends", backends, dirs_exist_ok=True)
    stub = server / "python_backend_stubs" / release / "triton_python_backend_stub"
    shutil.copy(stub, backends / "python")
    for each in MODELS:
        place = models / each["name"] / "1"
        place.mkdir(parents=True)
        (place / "model.py").write_text(MODEL.replace("{input}", each["input"])
            .replace("{output}", each["output"]).replace("{function}", each["function"])
            .replace("{packages}", str(server.parents[1])))  # fmt: skip
        (place.parent / "config.pbtxt").write_text(CONFIG.format(**each))
    binary = str(server / "bin" / "tritonserver")
    os.execve(
        binary,
        [
            binary, f"--model-repository={models}", f"--backend-directory={backends}",
            f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}",
            "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
        ],
        {
            **os.environ,
            "PYTHONHOME": sys.base_prefix,
            "LD_LIBRARY_PATH": str(next(server.parents[1].glob("*pytriton.libs"))),
        },
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

"""The systems under test: how each is started, called and ended.

Every system has the same two stages, two processes that run models, one thread a model, the same
largest batches, and waits at most 1 ms for a batch. Ray Serve runs with its settings for
throughput, whose replicas take requests themselves (RAY_SERVE_THROUGHPUT_OPTIMIZED), and with
bounded queues. MLServer has no pipelines: it is measured with two models that the client calls one
after the other, and with one model that runs both stages.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.wrappers_pb2 import BytesValue

from benchmarks.peers.connections import Call, http, kafka, rpc
from benchmarks.peers.open_loop import SERVED
from benchmarks.peers.processes import Tree, server
from benchmarks.peers.workloads import POSTCODE, Workload
from benchmarks.rig import ROOT
from headrace.broker.local_broker import borrow
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from headrace.processes import THREADS

HERE = Path(__file__).parent
APPS = HERE / "apps"
FOLDER = ROOT / "build" / "peers"  # of the peers' environments
RAY_HTTP, RAY_GRPC = 25_100, 25_200  # of the first replica that takes requests
GATEWAY_HTTP, GATEWAY_GRPC = 25_020, 25_021
MLSERVER_HTTP, MLSERVER_GRPC = 25_030, 25_031
PYTHONPATH = os.pathsep.join(map(str, (ROOT, POSTCODE)))
M = message_classes(pool())

Calling = Callable[[], AbstractAsyncContextManager[Call]]


def environment(name: str) -> Path:
    """Return the folder of programs of a peer's environment, whose requirements differ from ours;
    make it first if it is out of date. ``requirements-NAME.txt`` pins every package."""
    folder, wanted = FOLDER / name, HERE / f"requirements-{name}.txt"
    stamp = folder / "requirements.txt"
    if not stamp.is_file() or stamp.read_text() != wanted.read_text():
        uv = (sys.executable, "-m", "uv")
        made = ("venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        subprocess.run([*uv, *made], check=True)
        install = ("pip", "install", "--quiet", "--python", str(folder / "bin" / "python"))
        subprocess.run([*uv, *install, "-r", str(wanted)], check=True)
        stamp.write_text(wanted.read_text())
    return folder / "bin"


@dataclass(frozen=True, slots=True)
class Running:
    """A started system: its processes, and the ways to call it by protocol."""

    tree: Tree
    calls: dict[str, Calling]


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """``code``: the files that a user of the system writes for a workload."""

    title: str
    start: Callable[[Workload, Path], AbstractContextManager[Running]]
    code: Callable[[str], Sequence[Path]]


# ---------------------------------------------------------------------- Headrace


@contextmanager
def headrace(workload: Workload, logs: Path) -> Iterator[Running]:
    """Run broker, roles and gateway, as ``headrace up`` does."""
    file = APPS / "headrace" / f"{workload.name}.yaml"
    with tempfile.TemporaryDirectory() as home, borrow(Path(home)) as broker:
        command = [sys.executable, "-m", "headrace", "up", str(file)]
        variables = {"HEADRACE_HOME": home, "HEADRACE_BOOTSTRAP": broker.bootstrap}
        path = {"PYTHONPATH": PYTHONPATH}
        with server(command, variables | path, ROOT, logs / "headrace.log") as pid:
            infer = f"/v2/models/{workload.name}/infer"
            raw = {"Inference-Header-Content-Length": "0"}
            yield Running(
                Tree(broker.pid, pid),
                {
                    "Kafka": lambda: kafka(broker.bootstrap, workload.name),
                    "HTTP": lambda: http(
                        GATEWAY_HTTP, infer, raw, "headrace-timeout-ms: {ms:.1f}\r\n"
                    ),
                    "gRPC": lambda: rpc(
                        GATEWAY_GRPC,
                        f"/{SERVICE}/ModelInfer",
                        _to_gateway(workload.name),
                        _raw_output,
                    ),
                },
            )


def _to_gateway(model: str) -> Callable[[bytes], bytes]:
    tensor = M.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])

    def message(payload: bytes) -> bytes:
        raw = len(payload).to_bytes(4, "little") + payload
        request = M.ModelInferRequest(model_name=model, inputs=[tensor], raw_input_contents=[raw])
        return bytes(request.SerializeToString())

    return message


def _raw_output(message: bytes) -> bytes:
    return bytes(M.ModelInferResponse.FromString(message).raw_output_contents[0])


# ---------------------------------------------------------------------- Ray Serve


@contextmanager
def ray_serve(workload: Workload, logs: Path) -> Iterator[Running]:
    """Run ``serve run`` on a Ray of its own."""
    serve = environment("ray") / "serve"
    variables = {
        **THREADS,
        "PYTHONPATH": PYTHONPATH, "HOME": str(FOLDER), "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(RAY_HTTP),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(RAY_HTTP + 50),
        "RAY_SERVE_DIRECT_INGRESS_MIN_GRPC_PORT": str(RAY_GRPC),
        "RAY_SERVE_DIRECT_INGRESS_MAX_GRPC_PORT": str(RAY_GRPC + 50),
    }  # fmt: skip
    command = [str(serve), "run", str(APPS / "ray_serve" / f"{workload.name}.yaml")]
    with server(command, variables, with_weights(logs), logs / "ray.log") as pid:
        yield Running(
            Tree(pid),
            {
                "HTTP": lambda: http(
                    RAY_HTTP, "/", {}, "x-request-timeout-seconds: {s:.4f}\r\n"
                ),
                "gRPC": lambda: rpc(
                    RAY_GRPC, "/peers.Inference/Infer",
                    lambda payload: bytes(BytesValue(value=payload).SerializeToString()),
                    lambda message: bytes(BytesValue.FromString(message).value),
                ),
            },
        )  # fmt: skip


# ---------------------------------------------------------------------- MLServer


@contextmanager
def mlserver_two(workload: Workload, logs: Path) -> Iterator[Running]:
    """Run MLServer with a model per stage, which the client calls one after the other."""
    with _mlserver("mlserver_two", workload, logs) as tree:
        yield Running(tree, _mlserver_calls(("first", "second"), workload))


@contextmanager
def mlserver_one(workload: Workload, logs: Path) -> Iterator[Running]:
    """Run MLServer with one model that runs both stages."""
    with _mlserver("mlserver_one", workload, logs) as tree:
        yield Running(tree, _mlserver_calls(("both",), workload))


@contextmanager
def _mlserver(kind: str, workload: Workload, logs: Path) -> Iterator[Tree]:
    app = APPS / kind / workload.name
    path = os.pathsep.join((str(app), PYTHONPATH))
    command = [str(environment("mlserver") / "mlserver"), "start", str(app)]
    variables = {**THREADS, "PYTHONPATH": path, "PROMETHEUS_MULTIPROC_DIR": str(logs)}
    with server(command, variables, with_weights(logs), logs / f"{kind}.log") as pid:
        yield Tree(pid)


def _mlserver_calls(models: Sequence[str], workload: Workload) -> dict[str, Calling]:
    images = workload.name != "noop"
    return {
        "HTTP": lambda: _chained_http(models, images),
        "gRPC": lambda: _chained_rpc(models, images),
    }


@asynccontextmanager
async def _chained_http(models: Sequence[str], images: bool) -> AsyncIterator[Call]:
    kind = {"Content-Type": "application/json"}
    first = http(MLSERVER_HTTP, f"/v2/models/{models[0]}/infer", kind, "")
    last = http(MLSERVER_HTTP, f"/v2/models/{models[-1]}/infer", kind, "")
    async with first as ask_first, last as ask_last:

        async def call(body: bytes, left_s: float) -> tuple[str, bytes]:
            text = base64.b64encode(body).decode() if images else body.decode()
            tensor = {"name": "payload", "datatype": "BYTES", "shape": [1], "data": [text]}
            ending, response = await ask_first(_json_request(tensor), left_s)
            if ending == SERVED and len(models) > 1:
                between = json.loads(response)["outputs"][0]
                ending, response = await ask_last(_json_request(between), left_s)
            return ending, response

        yield call


def _json_request(tensor: dict[str, object]) -> bytes:
    return json.dumps({"inputs": [tensor]}).encode()


@asynccontextmanager
async def _chained_rpc(models: Sequence[str], images: bool) -> AsyncIterator[Call]:
    method = f"/{SERVICE}/ModelInfer"
    async with rpc(MLSERVER_GRPC, method, lambda message: message, lambda said: said) as ask:

        async def call(body: bytes, left_s: float) -> tuple[str, bytes]:
            data = base64.b64encode(body) if images else body
            for model in models:
                ending, response = await ask(_rpc_request(model, data), left_s)
                if ending != SERVED:
                    return ending, b""
                data = b"".join(
                    element
                    for tensor in M.ModelInferResponse.FromString(response).outputs
                    for element in tensor.contents.bytes_contents
                )
                if not data:  # as MLServer now and then answers under load
                    return "an answer without contents", b""
            return SERVED, data

        yield call


def _rpc_request(model: str, data: bytes) -> bytes:
    tensor = M.ModelInferRequest.InferInputTensor(name="payload", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(data)
    return bytes(M.ModelInferRequest(model_name=model, inputs=[tensor]).SerializeToString())


def with_weights(folder: Path) -> Path:
    """Return the folder, in which ``weights`` is that of the postcode example."""
    link = folder / "weights"
    if not link.is_symlink():
        link.symlink_to(POSTCODE / "weights")
    return folder


def _files(kind: str, *patterns: str) -> Callable[[str], Sequence[Path]]:
    def files(workload: str) -> Sequence[Path]:
        names = [pattern.format(workload) for pattern in patterns]
        return sorted(file for name in names for file in (APPS / kind).glob(name))

    return files


SYSTEMS = {
    "headrace": System(
        title="Headrace", start=headrace, code=_files("headrace", "{}.yaml", "{}.py")
    ),
    "ray": System(
        title="Ray Serve", start=ray_serve,
        code=_files("ray_serve", "{}.yaml", "{}.py", "rpc.py"),
    ),
    "mlserver": System(
        title="MLServer, two models", start=mlserver_two,
        code=_files("mlserver_two", "{}/**/*.py", "{}/**/*.json"),
    ),
    "mlserver-one": System(
        title="MLServer, one model", start=mlserver_one,
        code=_files("mlserver_one", "{}/**/*.py", "{}/**/*.json"),
    ),
}  # fmt: skip


def lines_of(files: Sequence[Path]) -> int:
    """Return the number of lines that are neither blank nor comments."""
    lines = [line.strip() for file in files for line in file.read_text().splitlines()]
    return sum(1 for line in lines if line and not line.startswith("#"))

"""Measure the gateway: latency over Kafka directly, and requests per second, with no-op stages.

    python -m benchmarks.gateway [--json] [--rate 50] [--seconds 20] [--connections 32] [--rounds 2]

One run, one broker, one pipeline (benchmarks/pipelines/noop.yaml) and one gateway share this
machine with the load. At the fixed rate queries go through ``headrace.Client``, HTTP and gRPC in
rounds of random order, so that all three see the same machine. Between them are calls without a
query: liveness over either protocol, and calls of a server that has no gateway and answers at once
(benchmarks/bare_grpc.py), the least time of a call over gRPC. gRPC has two clients: grpcio's, and
one that sends prepared frames (benchmarks/raw_grpc.py), which shows the share of grpcio's client.
Then every connection sends its next request as soon as the last one is answered.
In turn a client writes to Kafka directly with as many queries in flight, an upper bound for any
gateway. The body is 500 bytes, sent unchanged; the answer is JSON.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc
import psutil

from benchmarks.bare_grpc import bare_server
from benchmarks.load import RECORD_BYTES, Load
from benchmarks.overhead import FILE, ROLES, measure_headrace, serving
from benchmarks.raw_grpc import RawCalls
from headrace import Client
from headrace.broker.local_broker import borrow
from headrace.config.pipeline_file import read_pipeline_file
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import topics

HTTP_PORT, GRPC_PORT = 18_000, 18_001
WARM_S = 5.0
BODY = b"x" * RECORD_BYTES
INFER = "/v2/models/noop/infer"
INFER_METHOD, LIVE_METHOD = f"/{SERVICE}/ModelInfer", f"/{SERVICE}/ServerLive"
RAW = {"Inference-Header-Content-Length": "0"}
REQUEST = (
    f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\n"
    f"Content-Length: {len(BODY)}\r\n\r\n"
).encode() + BODY
HEALTH = "/v2/health/live"
LIVE = {"http": "http_live", "grpc": "grpc_live"}
BARE = {"grpc": "grpc_bare", "grpc_raw": "grpc_raw_bare"}  # without a gateway
WITHOUT_A_QUERY = (*LIVE.values(), *BARE.values())
OVER = ("http", "grpc", "grpc_raw")  # the ways over the gateway
WATCHED = ("gateway", "roles", "broker", "load")
M = message_classes(pool())


@contextmanager
def gateway(bootstrap: str, log: Path) -> Iterator[psutil.Process]:
    """Run a gateway during the block, from when it is ready."""
    command = [sys.executable, "-m", "headrace", "gateway", str(FILE), "--bootstrap", bootstrap]
    ports = ["--http-port", str(HTTP_PORT), "--grpc-port", str(GRPC_PORT)]
    with log.open("wb") as out:
        process = subprocess.Popen([*command, *ports], stdout=out, stderr=out)
    try:
        until = time.monotonic() + 60.0
        while not _ready():
            if time.monotonic() > until or process.poll() is not None:
                raise RuntimeError(f"the gateway is not ready:\n{log.read_text()}")
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _ready() -> bool:
    try:
        connection = HTTPConnection("127.0.0.1", HTTP_PORT, timeout=5)
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False


# ---------------------------------------------------------------------- at a fixed rate


@contextmanager
def ways(bootstrap: str) -> Iterator[dict[str, Callable[[], object]]]:
    """Yield the ways to the pipeline: each sends a query and returns with its answer."""
    http = HTTPConnection("127.0.0.1", HTTP_PORT)
    query = _infer_request()
    encoded = query.SerializeToString()
    with (
        Client(bootstrap, "noop") as client,
        bare_server() as bare_port,
        grpc.insecure_channel(f"127.0.0.1:{GRPC_PORT}") as channel,
        grpc.insecure_channel(f"127.0.0.1:{bare_port}") as bare,
        RawCalls("127.0.0.1", GRPC_PORT, INFER_METHOD, encoded) as raw_calls,
        RawCalls("127.0.0.1", bare_port, INFER_METHOD, encoded) as raw_bare,
    ):
        yield {
            "kafka": partial(_by_kafka, client),
            "http": partial(_by_http, http, "POST", INFER, BODY, RAW),
            LIVE["http"]: partial(_by_http, http, "GET", HEALTH),
            "grpc": _by_grpc(channel, INFER_METHOD, query, M.ModelInferResponse),
            LIVE["grpc"]: _by_grpc(
                channel, LIVE_METHOD, M.ServerLiveRequest(), M.ServerLiveResponse
            ),
            BARE["grpc"]: _by_grpc(bare, INFER_METHOD, query, M.ModelInferResponse),
            "grpc_raw": raw_calls.call,
            BARE["grpc_raw"]: raw_bare.call,
        }


def _infer_request() -> Any:
    tensor = M.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])
    raw = len(BODY).to_bytes(4, "little") + BODY
    return M.ModelInferRequest(model_name="noop", inputs=[tensor], raw_input_contents=[raw])


def _by_kafka(client: Client) -> None:
    assert client.ask(BODY).outcome == "answered"


def _by_http(http: HTTPConnection, *request: Any) -> None:
    http.request(*request)
    response = http.getresponse()
    response.read()
    assert response.status == 200, response.status


def _by_grpc(channel: grpc.Channel, method: str, asked: Any, answer: Any) -> Callable[[], object]:
    """Return a call of a method with the message ``asked``; ``answer`` is the class of answers."""
    call = channel.unary_unary(
        method,
        request_serializer=type(asked).SerializeToString,
        response_deserializer=answer.FromString,
    )
    return partial(call, asked)


def shuffled_rounds(names: Sequence[str]) -> Iterator[str]:
    """Yield all names again and again, each round in a random order.

    A query takes longer after a longer pause of the roles, and in a fixed order some ways would
    always follow a short one.
    """
    chance = random.Random(0)
    while True:
        yield from chance.sample(names, len(names))


def at_rate(
    asked: dict[str, Callable[[], object]], rate: float, seconds: float
) -> dict[str, list[float]]:
    """Return the latencies of each way in ms; ``rate`` is queries per second of all ways."""
    took: dict[str, list[float]] = {name: [] for name in asked}
    order = shuffled_rounds(list(asked))
    rate *= len(asked) / (len(asked) - len(WITHOUT_A_QUERY))
    began = time.perf_counter()
    for number in range(round(rate * (WARM_S + seconds))):
        due_s = began + number / rate
        time.sleep(max(0.0, due_s - time.perf_counter()))
        name = next(order)
        before = time.perf_counter()
        asked[name]()
        if number >= rate * WARM_S:
            took[name].append((time.perf_counter() - before) * 1e3)
    return took


# ---------------------------------------------------------------------- flat out


class Connection(asyncio.Protocol):
    """A connection that sends its next request once the last one is answered."""

    def __init__(self, statuses: list[bytes]) -> None:
        self._statuses = statuses
        self._seen = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        if not end:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= length:
            self._statuses.append(head[9:12])
            self._seen = b""
            self._transport.write(REQUEST)


async def flat_out(connections: int, seconds: float) -> tuple[float, dict[str, int], int]:
    """Return requests per second, the number of responses by status, and the number of all
    responses, those of the warm-up included."""
    statuses: list[bytes] = []
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Connection(statuses), "127.0.0.1", HTTP_PORT)
    await asyncio.sleep(WARM_S)
    warm = len(statuses)
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    took_s = time.perf_counter() - began
    seen = [status.decode() for status in statuses[warm:]]
    by_status = {status: seen.count(status) for status in sorted(set(seen))}
    return len(seen) / took_s, by_status, len(statuses)


# ---------------------------------------------------------------------- all of it


def run(rate: float, seconds: float, connections: int, rounds: int) -> dict[str, Any]:
    """Measure; return the figures by name."""
    with tempfile.TemporaryDirectory() as folder, borrow(Path(folder)) as broker:
        ensure_topics(KafkaConfig(broker.bootstrap), topics(read_pipeline_file(FILE).pipeline))
        logs = Path(folder)
        with (
            serving(broker.bootstrap, logs) as pids,
            gateway(broker.bootstrap, logs / "gw.log") as process,
        ):
            with ways(broker.bootstrap) as asked:
                took = at_rate(asked, rate, seconds)
            direct = Load(rate=None, seconds=seconds, outstanding=connections)
            flat = []
            for _ in range(rounds):
                over_kafka = measure_headrace(broker.bootstrap, direct, pids, broker.pid)
                flat.append(over_http(process, pids, broker.pid, connections, seconds))
                flat[-1]["kafka_requests_per_s"] = over_kafka.qps
                flat[-1]["kafka_roles_cpu_ms"] = sum(over_kafka.cpu_ms_per_query[r] for r in ROLES)
    p50 = {name: statistics.median(of) for name, of in took.items()}
    return {
        **{f"p50_ms_{name}": p50[name] for name in took},
        **{f"p99_ms_{name}": statistics.quantiles(of, n=100)[98] for name, of in took.items()},
        **{f"p50_over_kafka_ms_{name}": p50[name] - p50["kafka"] for name in OVER},
        "flat_out": flat,
    }


def over_http(
    process: psutil.Process, pids: Mapping[str, int], broker: int, connections: int, seconds: float
) -> dict[str, Any]:
    """Return requests per second flat out, responses by status, and ms of CPU a request."""
    watched = {
        "gateway": [process], "broker": [psutil.Process(broker)],
        "roles": [psutil.Process(pid) for pid in pids.values()], "load": [psutil.Process()],
    }  # fmt: skip
    before = {name: _cpu_s(each) for name, each in watched.items()}
    per_s, statuses, count = asyncio.run(flat_out(connections, seconds))
    cpu_ms = {n: (_cpu_s(each) - before[n]) / count * 1e3 for n, each in watched.items()}
    return {
        "requests_per_s": per_s,
        "statuses": statuses,
        **{f"{name}_cpu_ms": ms for name, ms in cpu_ms.items()},
    }


def _cpu_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The gateway against Kafka directly.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rate", type=float, default=50.0, help="queries per second, of all ways")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    parser.add_argument("--connections", type=int, default=32, help="flat out")
    parser.add_argument("--rounds", type=int, default=2, help="flat out")
    said = parser.parse_args(arguments)
    found = run(said.rate, said.seconds, said.connections, said.rounds)
    if said.json:
        print(json.dumps(found))
        return
    for name in ("kafka", *OVER):
        over = "" if name == "kafka" else f", {found[f'p50_over_kafka_ms_{name}']:+.2f} over Kafka"
        p50, p99 = found[f"p50_ms_{name}"], found[f"p99_ms_{name}"]
        live = f"; without a query {found[f'p50_ms_{LIVE[name]}']:.2f}" if name in LIVE else ""
        bare = f"; without a gateway {found[f'p50_ms_{BARE[name]}']:.2f}" if name in BARE else ""
        print(f"{name:8} p50 {p50:.2f} ms{over}, p99 {p99:.2f} ms at {said.rate:g}/s{live}{bare}")
    for flat in found["flat_out"]:
        cpu = ", ".join(f"{n} {flat[f'{n}_cpu_ms']:.3f}" for n in WATCHED)
        print(
            f"flat out, {said.connections} in flight: Kafka directly "
            f"{flat['kafka_requests_per_s']:.0f} queries/s (roles' CPU "
            f"{flat['kafka_roles_cpu_ms']:.3f} ms a query), HTTP {flat['requests_per_s']:.0f} "
            f"requests/s, by status {flat['statuses']}; ms of CPU a request: {cpu}"
        )


if __name__ == "__main__":
    main()

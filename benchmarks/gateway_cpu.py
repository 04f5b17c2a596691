"""Measure the gateway's own part of a request: CPU and switches of threads, without a broker.

    python -m benchmarks.gateway_cpu [CHECKOUT ...] [--calls 80] [--rounds 8] [--seconds 2]

Each checkout of this repository (the current one without an argument) runs a gateway whose queries
a thread of the same process answers at once. The checkouts are called in turn, so that all see the
same machine: with calls 20 ms apart, whose caches are cold as at 50/s, and flat out over 32
connections. CPU time is that of the gateway's process, which other work on the machine hardly
changes. The clients are sockets with prepared bytes.
"""

import argparse
import itertools
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.raw_grpc import RawCalls
from headrace.gateway.protocol.descriptors import SERVICE, message_classes, pool

WAYS, BUSY = ("http", "http_live", "grpc", "grpc_live"), ("http", "grpc")
GAP_S = 0.02
CONNECTIONS = 32
WARM_CALLS = 300
BODY = b"x" * 500
HEAD = "Host: x\r\nInference-Header-Content-Length: 0\r\nContent-Length: 500\r\n\r\n"
INFER = b"POST /v2/models/words/infer HTTP/1.1\r\n" + HEAD.encode() + BODY
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
SERVE = """
import asyncio, queue, sys, threading
from dataclasses import replace
from headrace.gateway import gateway_role
from headrace.roles.heap import tune_heap
from tests.gateway_world import LIMITS, BrokerInTest, a_gateway, an_answer

queries = queue.SimpleQueue()
broker = BrokerInTest(on_send=queries.put)

def answer():
    while True:
        waiting = [queries.get()]
        while not queries.empty():
            waiting.append(queries.get())
        broker.sent.clear()
        broker.tell(*(an_answer(query.id) for query in waiting))

async def serve():
    limits = replace(LIMITS, held_bytes=1 << 20, connections=1000, requests=1000, idle_s=600.0)
    async with a_gateway(broker, limits=limits) as gateway:
        tune_heap()
        sys.setswitchinterval(gateway_role.SWITCH_S)
        threading.Thread(target=answer, daemon=True).start()
        print(gateway.http, gateway.grpc, flush=True)
        await asyncio.Event().wait()

loop = getattr(gateway_role, "gateway_loop", None)  # None: a checkout before it
with asyncio.Runner(loop_factory=loop) as runner:
    runner.run(serve())
"""


class HttpCalls:
    """Calls of one request over one connection."""

    def __init__(self, port: int, request: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._request = request

    def call(self) -> None:
        """Send the request and read the whole response."""
        self._socket.sendall(self._request)
        said = b""
        while b"\r\n\r\n" not in said:
            said += self._socket.recv(65_536)
        head, _, body = said.partition(b"\r\n\r\n")
        assert head[9:12] == b"200", head
        left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < left:
            body += self._socket.recv(65_536)


class Gateway:
    """The gateway of a checkout, in a process of its own."""

    def __init__(self, checkout: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE], cwd=checkout, text=True, stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )  # fmt: skip
        assert self.process.stdout is not None
        http, grpc = map(int, self.process.stdout.readline().split())
        m = message_classes(pool())
        tensor = m.ModelInferRequest.InferInputTensor(name="input", datatype="BYTES", shape=[1])
        raw = len(BODY).to_bytes(4, "little") + BODY
        query = m.ModelInferRequest(model_name="words", inputs=[tensor], raw_input_contents=[raw])
        message = query.SerializeToString()

        def rpc(method: str, said: bytes) -> Callable[[], object]:
            return RawCalls("127.0.0.1", grpc, f"/{SERVICE}/{method}", said).call

        self.ways: dict[str, Callable[[], Callable[[], object]]] = {
            "http": lambda: HttpCalls(http, INFER).call,
            "http_live": lambda: HttpCalls(http, LIVE).call,
            "grpc": lambda: rpc("ModelInfer", message),
            "grpc_live": lambda: rpc("ServerLive", b""),
        }

    def used(self) -> tuple[float, int]:
        """Return the us of CPU and the voluntary switches of its threads so far."""
        tasks = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        cpu_ns = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
        lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        return cpu_ns / 1e3, sum(int(x.split()[1]) for x in lines if x.startswith("voluntary"))


def apart(gateway: Gateway, call: Callable[[], object], calls: int) -> tuple[float, float]:
    """Return us of CPU and switches a call, of calls with a gap between them."""
    before = gateway.used()
    for _ in range(calls):
        time.sleep(GAP_S)
        call()
    after = gateway.used()
    return (after[0] - before[0]) / calls, (after[1] - before[1]) / calls


def flat_out(gateway: Gateway, way: str, seconds: float) -> tuple[float, float]:
    """Return us of CPU and switches a call, of connections that call again and again."""
    counts = [0] * CONNECTIONS
    calls = [gateway.ways[way]() for _ in counts]
    until = time.monotonic() + seconds

    def run(number: int) -> None:
        while time.monotonic() < until:
            calls[number]()
            counts[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
    before = gateway.used()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = gateway.used()
    return (after[0] - before[0]) / sum(counts), (after[1] - before[1]) / sum(counts)


def rounds_of(
    gateways: dict[Path, Gateway], calls: int, rounds: int, seconds: float
) -> dict[tuple[str, Path], list[tuple[float, float]]]:
    """Return the figures of each round by way and checkout."""
    found: dict[tuple[str, Path], list[tuple[float, float]]] = {}
    held = {(place, way): make() for place, g in gateways.items() for way, make in g.ways.items()}
    for call in held.values():
        for _ in range(WARM_CALLS):
            call()
    for number in range(rounds):
        turns = list(gateways)[:: 1 if number % 2 else -1]
        for way, place in itertools.product(WAYS, turns):
            gateway = gateways[place]
            found.setdefault((way, place), []).append(apart(gateway, held[place, way], calls))
            if way in BUSY:
                busy = flat_out(gateway, way, seconds)
                found.setdefault((f"{way}, flat out", place), []).append(busy)
    return found


def run(checkouts: Sequence[Path], calls: int, rounds: int, seconds: float) -> None:
    """Measure and print."""
    gateways = {checkout: Gateway(checkout) for checkout in checkouts}
    try:
        found = rounds_of(gateways, calls, rounds, seconds)
    finally:
        for gateway in gateways.values():
            gateway.process.terminate()
    for (way, place), rows in sorted(found.items()):
        cpu, switches = (statistics.median(column) for column in zip(*rows, strict=True))
        first = found[way, checkouts[0]]
        ratios = [row[0] / other[0] for row, other in zip(rows, first, strict=True)]
        print(
            f"{way:15} {place}: CPU {cpu:.0f} us a request, {switches:.1f} switches; of the first "
            f"checkout's CPU {statistics.median(ratios):.2f} (median of rounds), less in "
            f"{sum(ratio < 1 for ratio in ratios)} of {len(ratios)}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description="The gateway's CPU a request, without a broker.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path.cwd()])
    parser.add_argument("--calls", type=int, default=80, help="one after the other, each round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=2.0, help="flat out, each round")
    said = parser.parse_args(arguments)
    run(said.checkouts, said.calls, said.rounds, said.seconds)


if __name__ == "__main__":
    main()

"""Threads of the gateway's gRPC port."""

import subprocess
import sys
from pathlib import Path

from psutil import CONN_LISTEN, Process

LOOKS = 10_000  # the thread may be running now
GATEWAY = """
import asyncio
from headrace.gateway import gateway_role
from headrace.gateway.access import tokens_in
from headrace.gateway.body_budget import BodyBudget
from headrace.gateway.front import Front
from headrace.gateway.http.listeners import Limits
from headrace.gateway.request_counts import RequestCounts

async def serve():
    limits = Limits(
        body_bytes=1000, held_bytes=1000, connections=8, requests=8, idle_s=60.0, body_s=1.0,
        drain_s=1.0,
    )
    options = gateway_role.GatewayOptions(
        host="127.0.0.1", http_port=0, grpc_port=0, tokens=None, tls=None, limits=limits
    )
    front = Front({}, RequestCounts({}), tokens_in(None), BodyBudget(1000))
    front.drain.set()  # no model to be ready
    closing = []
    print(await gateway_role._listen_grpc(closing, front, options, 0, None), flush=True)
    await asyncio.Event().wait()

asyncio.run(serve())
"""


def waiting_for_connections(process: int) -> set[str]:
    """Return the names of the threads that wait for the only listening socket."""
    place, listening = Path(f"/proc/{process}"), Process(process).net_connections("tcp")
    (socket,) = (each.fd for each in listening if each.status == CONN_LISTEN)
    sets = {
        hex(int(of.name)) for of in (place / "fdinfo").iterdir()
        if any(line.split()[:2] == ["tfd:", str(socket)] for line in of.read_text().splitlines())
    }  # fmt: skip
    return {
        (task / "comm").read_text().strip() for task in (place / "task").iterdir()
        if sets.intersection((task / "syscall").read_text().split()[1:2])
    }  # fmt: skip


def test_the_thread_that_waits_for_events_of_grpc_reads_its_sockets_too() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY], text=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()  # it listens
            looks = (waiting_for_connections(process.pid) for _ in range(LOOKS))
            names = next(filter(None, looks), set())
            assert names
            assert "event_engine" not in names
        finally:
            process.kill()

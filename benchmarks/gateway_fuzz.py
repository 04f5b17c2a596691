"""Send a gateway damaged requests: each is served, or gets a status of its client's fault.

    python -m benchmarks.gateway_fuzz [--seed 17] [--first 0] [--count 100000] [--connections 32]

Request number n of a seed is always the same, so that a run can be made in pieces and a finding
repeated (``--first n --count 1``). A gateway before two stages that take any bytes
(benchmarks/pipelines/noop.yaml, SLO 60 s) runs on a broker of its own, so that no operator fails
and no query is late.
The exit code is 1 if a status is not one of ``ALLOWED`` (0: no response within ``WITHIN_S``), or if
the gateway does not serve a whole request afterwards.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import aiohttp
import numpy as np

from benchmarks.overhead import FILE
from headrace.broker.local_broker import borrow
from tests.integration.brought_up import brought_up
from tests.integration.gateways import a_gateway, ask, words

ALLOWED = frozenset((200, 400, 404, 405, 413, 414, 431))
MOST_BYTES = "100000"
WITHIN_S = 150.0  # beyond the SLO, with egress's grace and the gateway's patience

HEAD = json.dumps(
    {
        "id": "", "parameters": {"timeout": 60_000_000},
        "inputs": [{"name": "input", "datatype": "BYTES", "shape": [1],
                    "parameters": {"binary_data_size": 15}}],
        "outputs": [{"name": "output", "parameters": {"binary_data": True}}],
    }
).encode()  # fmt: skip
GOOD = HEAD + b"\x0b\0\0\0hello world"


def damaged(rng: np.random.Generator) -> tuple[bytes, dict[str, str]]:
    """Return a body with bytes cut out, put in and changed, and headers that may not fit it."""
    body = bytearray(GOOD)
    for _ in range(rng.integers(0, 4)):
        at = int(rng.integers(0, len(body) + 1))
        cut, put = int(rng.integers(0, 12)), int(rng.integers(0, 6))
        body[at : at + cut] = rng.bytes(put)
    length = int(rng.choice([len(HEAD), 0, 1, len(body), len(body) + 1, -1]))
    headers = {"Inference-Header-Content-Length": str(length)}
    odd = rng.random()
    if odd < 0.05:
        headers["Content-Encoding"] = "gzip"
    elif odd < 0.1:
        headers["headrace-timeout-ms"] = str(rng.choice(["x", "-1", "1e999", "10000"]))
    return bytes(body), headers


async def statuses_of(
    url: str, seed: int, numbers: Iterator[int], connections: int
) -> Counter[int]:
    """Return the number of responses by status; ``numbers`` are those of the requests."""
    found: Counter[int] = Counter()

    async def send(session: aiohttp.ClientSession, alone: aiohttp.ClientSession) -> None:
        for number in numbers:  # shared: each takes the next
            request = damaged(np.random.default_rng([seed, number]))
            try:
                status = await _either(session, alone, url, request)
            except TimeoutError:
                status = 0
            if status not in ALLOWED:
                print(f"request {number} of seed {seed}: {status}", file=sys.stderr)
            found[status] += 1

    kept, one = aiohttp.TCPConnector(limit=connections), aiohttp.TCPConnector(force_close=True)
    within = aiohttp.ClientTimeout(total=WITHIN_S)
    async with (
        aiohttp.ClientSession(connector=kept, timeout=within) as session,
        aiohttp.ClientSession(connector=one, timeout=within) as alone,
    ):
        await asyncio.gather(*(send(session, alone) for _ in range(connections)))
    return found


async def _either(
    kept: aiohttp.ClientSession,
    alone: aiohttp.ClientSession,
    url: str,
    request: tuple[bytes, dict[str, str]],
) -> int:
    try:
        return await _status(kept, url, *request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        # The gateway closes a connection after a body that cannot be read, which may be while the
        # next request is on its way; one of its own gets a response.
        return await _status(alone, url, *request)


async def _status(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]
) -> int:
    async with session.post(url, data=body, headers=headers) as response:
        await response.read()
        return response.status


def run(bootstrap: str, home: Path, seed: int, numbers: range, connections: int) -> Counter[int]:
    """Fuzz a gateway; return the number of responses by status.

    Raises ``AssertionError`` if it does not serve a whole request afterwards.
    """
    env = {**os.environ, "HEADRACE_HOME": str(home), "HEADRACE_BOOTSTRAP": bootstrap}
    with brought_up(FILE, env), a_gateway(FILE, env, "--most-bytes", MOST_BYTES) as running:
        url = f"{running.http}/v2/models/noop/infer"
        found = asyncio.run(statuses_of(url, seed, iter(numbers), connections))
        assert ask(url, words("and still")).status == 200
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz and print; return the exit code."""
    parser = argparse.ArgumentParser(description="Damaged requests for a gateway.")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--first", type=int, default=0, help="number of the first request")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=32)
    said = parser.parse_args(arguments)
    numbers = range(said.first, said.first + said.count)
    with tempfile.TemporaryDirectory() as home, borrow(Path(home)) as broker:
        found = run(broker.bootstrap, Path(home), said.seed, numbers, said.connections)
    by_status = ", ".join(f"{count} of {status}" for status, count in sorted(found.items()))
    print(f"requests {numbers.start} to {numbers.stop - 1} of seed {said.seed}: {by_status}")
    return 0 if set(found) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())

"""Damaged bodies over HTTP: binary tensors with bytes cut out, put in and changed."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import aiohttp
import numpy as np

from benchmarks.gateway_fuzz.damage import Outcome, Target, cut_and_put, outcomes

ALLOWED = frozenset((200, 400, 404, 405, 413, 414, 431))
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
    """Return a damaged body, and headers that may not fit it."""
    body = cut_and_put(rng, GOOD)
    length = int(rng.choice([len(HEAD), 0, 1, len(body), len(body) + 1, -1]))
    headers = {"Inference-Header-Content-Length": str(length)}
    odd = rng.random()
    if odd < 0.05:
        headers["Content-Encoding"] = "gzip"
    elif odd < 0.1:
        headers["headrace-timeout-ms"] = str(rng.choice(["x", "-1", "1e999", "10000"]))
    return body, headers


async def send_bodies(
    target: Target, seed: int, numbers: Iterator[int], at_once: int
) -> tuple[Counter[str], int]:
    """Send the requests; return their number by status, and how many are not in ``ALLOWED``."""
    url = f"http://{target.http}/v2/models/{target.model}/infer"
    kept, one = aiohttp.TCPConnector(limit=at_once), aiohttp.TCPConnector(force_close=True)
    async with (
        aiohttp.ClientSession(connector=kept) as session,
        aiohttp.ClientSession(connector=one) as alone,
    ):

        async def send(number: int) -> Outcome:
            request = damaged(np.random.default_rng([seed, number]))
            status = 0
            # The gateway closes a connection that idles, or after a body that cannot be read, which
            # may be while the next request is on its way; one of its own gets a response.
            for each in (session, alone):
                with suppress(aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
                    status = await _status(each, url, *request)
                    break
            return Outcome(str(status) if status else "cut off", status in ALLOWED)

        return await outcomes("body", numbers, at_once, send)


async def _status(
    session: aiohttp.ClientSession, url: str, body: bytes, headers: dict[str, str]
) -> int:
    async with session.post(url, data=body, headers=headers) as response:
        await response.read()
        return response.status

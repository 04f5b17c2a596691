"""A gateway under damaged requests: each gets a status of the client's fault or is served."""

import http.client
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.integration.brought_up import brought_up
from tests.integration.gateways import a_gateway, ask, result_of, words

ROOT = Path(__file__).parents[2]
SEED = 20_261_122
ALLOWED = {200, 400, 404, 405, 413, 414, 431}

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

HEAD = json.dumps(
    {
        "id": "f", "parameters": {"timeout": 10_000_000},
        "inputs": [{"name": "input", "datatype": "BYTES", "shape": [1],
                    "parameters": {"binary_data_size": 15}}],
        "outputs": [{"name": "output", "parameters": {"binary_data": True}}],
    }
).encode()  # fmt: skip
GOOD = HEAD + b"\x0b\0\0\0hello world"


def damaged(rng: np.random.Generator) -> tuple[bytes, dict[str, str]]:
    """A body with bytes cut out, put in and changed, and headers that may not fit it."""
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


def test_a_hundred_thousand_damaged_requests(broker: str, tmp_path: Path) -> None:
    file = ROOT / "examples" / "words" / "pipeline.yaml"
    env = {**os.environ, "HEADRACE_HOME": str(tmp_path), "HEADRACE_BOOTSTRAP": broker}
    count = int(os.environ.get("HEADRACE_FUZZED", "100000"))
    rng = np.random.default_rng(SEED)
    with brought_up(file, env), a_gateway(file, env, "--most-bytes", "100000") as running:
        connection = http.client.HTTPConnection(running.http.removeprefix("http://"), timeout=60)
        statuses: Counter[int] = Counter()
        for _ in range(count):
            body, headers = damaged(rng)
            connection.request("POST", "/v2/models/words/infer", body, headers)
            response = connection.getresponse()
            response.read()
            statuses[response.status] += 1
        print(statuses)
        served = ask(f"{running.http}/v2/models/words/infer", words("and still"))
        assert result_of(served) == ["AND", "STILL"]
    assert set(statuses) <= ALLOWED, statuses
    assert min(statuses[200], statuses[400]) > count / 20

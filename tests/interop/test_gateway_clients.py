"""Other projects' clients use the gateway; `make interop` creates their environments."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.brought_up import brought_up
from tests.integration.gateways import Running, a_gateway
from tests.interop.environments import python_of

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SUMS = """
import numpy as np


class Sum:
    def load(self, device):
        pass

    def predict(self, batch):
        return [query["numbers"].sum(axis=0) for query in batch]


def only(leaves):
    return leaves[0]
"""

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one gateway for two pipelines: texts without a signature, and arrays with one."""
    folder = tmp_path_factory.mktemp("interop")
    words = yaml.safe_load((ROOT / "examples/words/pipeline.yaml").read_text())
    (folder / "words.py").write_text((ROOT / "examples/words/words.py").read_text())
    (folder / "sums.py").write_text(SUMS)
    sums = {
        "name": "sums", "slo": "20s", "input": "avro", "combine": "sums:only",
        "tasks": {"add": {"variants": {"plain": {"operator": "sums:Sum"}}}},
        "cluster": {"devices": {"cpu": 1}},
        "signature": {
            "inputs": {"numbers": {"datatype": "FP32", "shape": [-1, 3]}},
            "outputs": {"sum": {"datatype": "FP32", "shape": [3]}},
        },
    }  # fmt: skip
    files = [folder / "words.yaml", folder / "sums.yaml"]
    files[0].write_text(yaml.safe_dump({**words, "name": "worded", "slo": "20s"}))
    files[1].write_text(yaml.safe_dump(sums))
    env = {**os.environ, "HEADRACE_HOME": str(folder), "HEADRACE_BOOTSTRAP": broker}
    with (
        brought_up(files[0], env),
        brought_up(files[1], env),
        a_gateway(files[0], env, str(files[1])) as running,
    ):
        yield running


def seen(name: str, gateway: Running) -> Any:
    """Return the output of an environment's calls."""
    python = python_of(name)
    assert python.exists(), f"{python} is not there; `make interop` makes it"
    addresses = (gateway.http.removeprefix("http://"), gateway.grpc)
    done = subprocess.run(
        [python, HERE / f"{name}_calls.py", *addresses],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def triton(gateway: Running) -> Any:
    return seen("triton", gateway)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritonclient_is_served(triton: Any, protocol: str) -> None:
    found = triton[protocol]
    assert (found["live"], found["ready"], found["model_ready"]) == (True, True, True)
    assert (found["words"], found["id"]) == ('["HELLO","WORLD"]', "mine")
    assert found["sum"] == [3.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("protocol", "unknown", "late"),
    [
        ("http", "404", "504"),
        ("grpc", "StatusCode.NOT_FOUND", "StatusCode.DEADLINE_EXCEEDED"),
    ],
)
def test_tritonclient_gets_the_errors_of_the_gateway(
    triton: Any, protocol: str, unknown: str, late: str
) -> None:
    found = triton[protocol]
    assert (found["unknown"][0], found["late"][0]) == (unknown, late)
    assert "known are worded, sums" in found["unknown"][1]
    assert "deadline" in found["late"][1]


def test_tritonclient_reads_the_metadata_of_the_models(triton: Any) -> None:
    row = {"name": "numbers", "datatype": "FP32", "shape": [-1, 3]}
    assert triton["http"]["metadata"]["inputs"] == [row]
    assert triton["grpc"]["metadata"]["inputs"] == [{**row, "shape": ["-1", "3"]}]
    assert triton["http"]["config"]["max_batch_size"] == 0
    assert triton["grpc"]["config"]["config"]["input"][0]["data_type"] == "TYPE_FP32"
    assert "binary_tensor_data" in triton["http"]["server"]["extensions"]
    assert [m["state"] for m in triton["http"]["index"]] == ["READY", "READY"]
    assert len(triton["grpc"]["index"]["models"]) == 2


def test_tritonclient_over_http_compresses_and_asks_for_json(triton: Any) -> None:
    assert triton["http"]["packed"] == '["PACKED"]'
    assert triton["http"]["json"] == [3.0, 5.0, 7.0]
    assert triton["http"]["async"] == [f'["W{n}"]' for n in range(20)]


def test_reflection_shows_the_protocol_as_tritonclient_has_it(triton: Any) -> None:
    found = triton["reflection"]
    assert found["services"] == [
        "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
        "inference.GRPCInferenceService",
    ]  # fmt: skip
    assert (len(found["methods"]), found["differences"]) == (8, [])
    assert found["compared"] > 20


def test_kserves_clients_are_served(gateway: Running) -> None:
    assert seen("kserve", gateway) == {
        "live": True, "ready": True, "model_ready": True, "http": '["HELLO","WORLD"]',
        "grpc_live": True, "grpc_ready": True, "grpc": '["OVER","GRPC"]',
    }  # fmt: skip


def test_locusts_users_are_served(gateway: Running, tmp_path: Path) -> None:
    python, users = python_of("locust"), tmp_path / "locustfile.py"
    assert python.exists(), f"{python} is not there; `make interop` makes it"
    shown = (ROOT / "docs/how-to/gateway.md").read_text().partition("## Locust")[2]
    text = shown.partition("```python\n")[2].partition("```")[0]
    users.write_text(text.replace("models/words/", "models/worded/"))
    load = ("--headless", "--json", "-u", "4", "-r", "4", "-t", "10s", "-H", gateway.http)
    done = subprocess.run(
        [python, "-m", "locust", "-f", users, *load],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert (row["name"], row["num_failures"]) == ("/v2/models/worded/infer", 0), row
    assert row["num_requests"] > 4, row

"""A pipeline on a site with a schema registry reads and writes Confluent's framing."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.schema_registry import a_registry
from headrace import Client
from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
AMPLE_S = 20.0  # a deadline that a busy machine can meet
PIPELINE = """\
name: registered
slo: 20s
input: confluent
results: confluent
schema_registry: {registry}
tasks:
  split:
    slots: 2
    children: [shout]
    variants: {{plain: {{operator: "texts:Split"}}}}
  shout:
    slots: 2
    variants: {{plain: {{operator: "words:Shout"}}}}
cluster: {{devices: {{cpu: 2}}}}
"""
TEXTS = """\
class Split:
    def predict(self, batch):
        return [(text.decode() if isinstance(text, bytes) else text).split() for text in batch]
"""

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    with a_registry() as address:
        yield address


@pytest.fixture(scope="module")
def registered(
    broker: str, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run the registered pipeline; yield its file."""
    folder = tmp_path_factory.mktemp("registered")
    path = written(folder, registry)
    with brought_up(path, environment(folder) | {"HEADRACE_BOOTSTRAP": broker}):
        yield path


def written(folder: Path, registry: str) -> Path:
    """Write the pipeline, whose operators take text and bytes; return its file."""
    (folder / "texts.py").write_text(TEXTS)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(registry=registry))
    return path


def environment(folder: Path) -> dict[str, str]:
    paths = f"{ROOT / 'examples/words'}:{folder}"
    return {**os.environ, "HEADRACE_HOME": str(folder), "PYTHONPATH": paths}


def test_send_writes_and_reads_confluents_framing(
    registered: Path, broker: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text(json.dumps("hello world"))
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "send", str(registered), str(text), "--json",
         "--bootstrap", broker],
        capture_output=True, text=True, env=environment(tmp_path), cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["outcome"], answer["result"]) == ("answered", ["HELLO", "WORLD"])


def test_a_client_writes_and_reads_confluents_framing(
    registered: Path, broker: str, registry: str
) -> None:
    with Client(broker, "registered", input="confluent", schema_registry=registry) as client:
        answer = client.ask(b"so it is", deadline=AMPLE_S)
    assert (answer.outcome, answer.result) == ("answered", ["SO", "IT", "IS"])

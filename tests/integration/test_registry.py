"""A pipeline on a site that runs a schema registry: Confluent's framing in and out."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace import Client
from tests.integration.brought_up import brought_up

ROOT = Path(__file__).parents[2]
AMPLE_S = 20.0  # a deadline that a busy machine keeps
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
    variants: {{plain: {{operator: "words:Split"}}}}
  shout:
    slots: 2
    variants: {{plain: {{operator: "words:Shout"}}}}
cluster: {{devices: {{cpu: 2}}}}
"""

pytestmark = pytest.mark.kafka


class Registry(BaseHTTPRequestHandler):
    """What a schema registry answers to its two requests: a text's id, and an id's text."""

    texts: list[str]

    def do_POST(self) -> None:
        """Register: the same text has the same id."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        text = json.loads(body)["schema"]
        if text not in self.texts:
            self.texts.append(text)
        self._say(200, {"id": self.texts.index(text) + 1})

    def do_GET(self) -> None:
        """The text of an id."""
        number = int(self.path.partition("?")[0].rpartition("/")[2])
        if number > len(self.texts):
            self._say(404, {"error_code": 40403, "message": "no such schema"})
        else:
            self._say(200, {"schema": self.texts[number - 1], "schemaType": "AVRO"})

    def _say(self, status: int, body: dict[str, object]) -> None:
        value = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test's stderr is for its failure."""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    pytest.importorskip("authlib", reason="the extra `registry` is not installed")
    handler = type("OneRegistry", (Registry,), {"texts": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def registered(
    broker: str, registry: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The pipeline, up; its file."""
    folder = tmp_path_factory.mktemp("registered")
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(registry=registry))
    with brought_up(path, environment(folder) | {"HEADRACE_BOOTSTRAP": broker}):
        yield path


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HEADRACE_HOME": str(folder), "PYTHONPATH": str(ROOT / "examples/words")}


def test_send_writes_and_reads_confluents_framing(
    registered: Path, broker: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"hello world")
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

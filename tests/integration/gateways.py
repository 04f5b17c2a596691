"""Gateway processes for tests: the one that `up` starts, and additional ones."""

import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_PLACES = re.compile(r"; http at (https?://[^/]+)/v2; grpc at ([\d.:]+)")
_METRICS = re.compile(r"; metrics at (http://[^;]+)/metrics")


@dataclass(frozen=True)
class Running:
    """A gateway that listens. ``metrics`` is the address of its metrics, or ``""``."""

    http: str
    grpc: str
    metrics: str = ""
    process: "subprocess.Popen[str] | None" = None


def places_in(line: str) -> Running | None:
    """Return the addresses from the gateway's log line that states where it listens."""
    found, metrics = _PLACES.search(line), _METRICS.search(line)
    return found and Running(found[1], found[2], metrics[1] if metrics else "")


@contextmanager
def a_gateway(file: Path, env: Mapping[str, str], *options: str) -> Iterator[Running]:
    """Run ``headrace gateway FILE`` on free ports; yield once it listens, and end it after the
    block."""
    ports = ("--http-port", "0", "--grpc-port", "0")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "gateway", str(file), *ports, *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **env},
        cwd=ROOT,
    )  # fmt: skip
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    # Nothing else reads the pipe, and a gateway blocks if it cannot write its log.
    reading = threading.Thread(target=deque, args=(lines, 0), daemon=True)
    try:
        places = next(filter(None, map(places_in, lines)), None)
        assert places is not None, "the gateway ended"
        reading.start()
        yield Running(places.http, places.grpc, places.metrics, process)
    finally:
        process.terminate()
        process.wait(30)
        if reading.ident is not None:
            reading.join(30)
        process.stderr.close()


@dataclass(frozen=True)
class Said:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def row(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.body)


def ask(url: str, body: bytes | Any = None, *, method: str = "", **more: Any) -> Said:
    """Return the response to a request; a body other than bytes is sent as JSON. ``headers`` and
    ``context`` are passed to urllib."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data, more.pop("headers", {}), method=method or ("GET" if data is None else "POST")
    )
    try:
        with urllib.request.urlopen(request, timeout=60, **more) as response:
            return Said(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        return Said(error.code, dict(error.headers), error.read())


def words(text: str, **more: Any) -> dict[str, Any]:
    """Return an inference request with one text."""
    tensor = {"name": "input", "datatype": "BYTES", "shape": [1], "data": [text]}
    return {"inputs": [tensor], **more}


def result_of(said: Said) -> Any:
    """Return the result in the only output of a response."""
    assert said.status == 200, said
    return json.loads(said.row["outputs"][0]["data"][0])

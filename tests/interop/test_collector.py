"""An OpenTelemetry collector receives the traces."""

import itertools
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.errors import Unsuccessful
from headrace.traces.answer_spans import spans_of
from headrace.traces.otlp import request_of, send
from headrace.traces.query_trace import TraceContext
from schemas.enumerations import ReasonCode
from schemas.records import DROPPED
from tests.builders import a_hop, an_answer
from tests.interop.go_programs import collector

WITHIN_S = 30.0
TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@dataclass(frozen=True)
class Collecting:
    """A collector that listens, and the file of the received data."""

    endpoint: str
    file: Path

    def spans(self) -> list[dict[str, Any]]:
        """Return every received span, once there is one."""
        until = time.monotonic() + WITHIN_S
        for attempt in itertools.count():
            lines = self.file.read_text().splitlines() if self.file.exists() else []
            if lines or time.monotonic() > until:
                break
            time.sleep(min(0.05 * 2**attempt, 1.0))
        return [
            span
            for line in lines
            for resource in json.loads(line)["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Collecting]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config, taken = tmp_path / "collector.yaml", tmp_path / "taken.jsonl"
    config.write_text(yaml.safe_dump({
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {"file": {"path": str(taken), "flush_interval": "100ms"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
        },
    }))  # fmt: skip
    log = tmp_path / "log"
    with log.open("w") as file:
        running = subprocess.Popen([collector(), "--config", config], stdout=file, stderr=file)
    try:
        _wait_until_up(f"http://{address}", running, log)
        yield Collecting(f"http://{address}", taken)
    finally:
        running.terminate()
        running.wait(timeout=30)


def _wait_until_up(endpoint: str, running: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + WITHIN_S
    for attempt in itertools.count():
        try:
            send(endpoint, {"resourceSpans": [{"scopeSpans": [{"spans": []}]}]})
            return
        except Unsuccessful:
            assert running.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() < until, log.read_text()[-2000:]
            time.sleep(min(0.05 * 2**attempt, 1.0))


def test_a_collector_takes_spans_and_has_every_one(collecting: Collecting) -> None:
    answer = an_answer(
        outcome=DROPPED, reason="too late", reason_code=ReasonCode.PAST_SAVING, task="read",
        paths=((a_hop(task="locate"), a_hop(task="read")),),
    )  # fmt: skip
    sent = spans_of(answer, TraceContext(TRACE, CALLER, sampled=True), "p")
    send(collecting.endpoint, request_of(sent, "p"))
    found = {span["spanId"]: span for span in collecting.spans()}
    assert set(found) == {span["spanId"] for span in sent}
    for span in sent:
        taken = found[span["spanId"]]
        assert {key: taken.get(key) for key in ("traceId", "parentSpanId", "name")} == {
            key: span.get(key) for key in ("traceId", "parentSpanId", "name")
        }
        for time_of in ("startTimeUnixNano", "endTimeUnixNano"):  # a collector omits zeros
            assert taken.get(time_of, "0") == span[time_of]
        assert len(taken.get("attributes", ())) == len(span["attributes"])
    assert found[sent[0]["spanId"]]["status"] == {"code": 2, "message": "too late"}


def test_a_collector_refuses_a_malformed_span(collecting: Collecting) -> None:
    (span, *_) = spans_of(an_answer(), TraceContext(TRACE, CALLER), "p")
    with pytest.raises(Unsuccessful, match=r"did not take 1 spans \(HTTP Error 400"):
        send(collecting.endpoint, request_of([{**span, "traceId": "no hex"}], "p"))

"""The brokers that a command uses; commands that only read start none."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.broker import broker_warm_up
from headrace.broker import local_broker as connected
from headrace.broker.connect import local_broker
from headrace.broker.local_broker import Running, status
from headrace.cli.main import headrace
from headrace.errors import Interrupted
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError

READING = [
    ("status", "--once"),
    ("status", "FILE", "--once"),
    ("explain", "FILE", "--last", "late"),
    ("report", "FILE"),
    ("policy", "history", "FILE"),
    ("policy", "list", "FILE"),
    ("dead-letters", "list", "FILE"),
]
EXAMPLE = Path(__file__).parents[4] / "examples" / "postcode" / "pipeline.yaml"


@pytest.mark.parametrize("line", READING, ids=" ".join)
def test_a_command_that_reads_starts_no_broker(
    line: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    for name in ("HEADRACE_BOOTSTRAP", "HEADRACE_KAFKA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    words = [str(EXAMPLE) if word == "FILE" else word for word in line]
    with pytest.raises(BrokerError, match="the local one does not run"):
        CliRunner().invoke(headrace, words, catch_exceptions=False)
    assert status() is None


@pytest.mark.parametrize("by", [Interrupted, KeyboardInterrupt])
def test_a_broker_that_is_interrupted_while_it_warms_up_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: type[BaseException]
) -> None:
    """`up` used to leave it running after Ctrl-C, since it had not learnt that it started it."""
    stopped: list[bool] = []
    running = Running(
        bootstrap="nobody:1", port=1, pid=7, home=tmp_path, log=tmp_path, started_here=True
    )

    def interrupted(kafka: KafkaConfig, seconds: float) -> None:
        raise by

    monkeypatch.setattr(connected, "status", lambda: None)
    monkeypatch.setattr(connected, "start", lambda **_: running)
    monkeypatch.setattr(connected, "stop", lambda: stopped.append(True))
    monkeypatch.setattr(broker_warm_up, "warm_up_broker", interrupted)
    with pytest.raises(by):
        local_broker()
    assert stopped == [True]

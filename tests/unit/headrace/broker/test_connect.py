"""The brokers that a command uses; commands that only read start none."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.broker.local_broker import status
from headrace.cli.main import headrace
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

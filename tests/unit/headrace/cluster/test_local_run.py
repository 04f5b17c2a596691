"""Signals while a pipeline starts and runs."""

import signal
from pathlib import Path

import pytest

from headrace.cluster.local_run import LocalRun, ReceivedSignal
from headrace.cluster.run_state import read_state
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import Interrupted
from streams.kafka.kafka_config import KafkaConfig

WORDS = Path(__file__).parents[4] / "examples" / "words" / "pipeline.yaml"


def test_a_signal_is_noted_while_the_pipeline_runs_and_a_second_ctrl_c_ends_it() -> None:
    told = ReceivedSignal()
    told.take(signal.SIGTERM)
    told.take(signal.SIGINT)
    assert told.signal == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        told.take(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_start_of_the_broker_at_once(number: int) -> None:
    """Ctrl-C while the broker started used to wait 8 s and then start the roles."""
    told = ReceivedSignal()
    with pytest.raises(Interrupted), told.interrupting():
        told.take(number)
    assert told.signal == number
    with pytest.raises(Interrupted), told.interrupting():
        raise AssertionError("a signal before the block ends it too")


def test_a_disk_without_room_for_the_state_of_a_run_does_not_end_it(tmp_path: Path) -> None:
    directory = tmp_path / "run"  # no file can be written until it exists
    run = LocalRun(read_pipeline_file(WORDS), KafkaConfig("nobody:1"), directory)
    run.tend()
    directory.mkdir()
    run.tend()
    assert read_state(directory) is not None

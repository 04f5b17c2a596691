"""Signals while a pipeline starts and runs."""

import signal

import pytest

from headrace.cluster.local_run import ReceivedSignal
from headrace.errors import Interrupted


def test_a_signal_is_noted_while_the_pipeline_runs_and_a_second_ctrl_c_ends_it() -> None:
    told = ReceivedSignal()
    told.take(signal.SIGTERM)
    told.take(signal.SIGINT)
    assert told.signal == signal.SIGINT
    with pytest.raises(KeyboardInterrupt):
        told.take(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_start_of_the_broker_at_once(number: int) -> None:
    """Ctrl-C while the broker started waited 8 s and went on to start the roles."""
    told = ReceivedSignal()
    with pytest.raises(Interrupted), told.interrupting():
        told.take(number)
    assert told.signal == number
    with pytest.raises(Interrupted), told.interrupting():
        raise AssertionError("a signal before the block ends it too")

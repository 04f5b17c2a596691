"""Inner time: slower by a factor, for clocks, waits and stamps alike."""

from collections.abc import Iterable

import click
import pytest

from headrace.roles.process_setup import DILATION, dilated, dilation
from schemas.trace_context import Headers
from streams.codecs.wire import Fetched
from streams.live.dilation import REAL, Dilation

SLOW = Dilation(4.0, 1000.0)


class Broker:
    """A transport that records its input."""

    assigned = 3
    patience_s = 2.0

    def __init__(self) -> None:
        self.turns: list[float] = []

    def fetch(self, timeout_s: float) -> list[Fetched]:
        return [Fetched("lines.queries", 0, 7, 1040.0, None, b"", None)]

    def assign(
        self, new: Iterable[tuple[str, int]], gone: Iterable[tuple[str, int]], commits: bool
    ) -> int:
        return 3

    def pause(self, places: Iterable[tuple[str, int]], among: Iterable[tuple[str, int]]) -> None:
        """Pause nothing."""

    def send(self, topic: str, value: bytes, slot: int, key: str, headers: Headers = ()) -> None:
        """Send nothing."""

    def done(self, place: tuple[str, int], offset: int, note: str) -> None:
        """Commit nothing."""

    def end_of(self, place: tuple[str, int]) -> int | None:
        """Return no end."""

    def abandon(self) -> None:
        """Abandon nothing."""

    def end_turn(self, now: float) -> None:
        self.turns.append(now)

    def close(self) -> None:
        """Close nothing."""


def test_inner_time_begins_with_the_walls_and_goes_slower() -> None:
    assert [SLOW.inner(wall) for wall in (1000.0, 1004.0, 1040.0)] == [1000.0, 1001.0, 1010.0]
    assert SLOW.wall(SLOW.inner(1234.5)) == pytest.approx(1234.5)


def test_a_clock_tells_inner_time() -> None:
    assert SLOW.clock(lambda: 1020.0)() == 1005.0


def test_records_carry_inner_time_and_the_broker_gets_wall_time() -> None:
    broker = Broker()
    transport = SLOW.transport(broker)
    (fetched,) = transport.fetch(0.1)
    transport.end_turn(1010.0)
    assert (fetched.at_s, broker.turns) == (1010.0, [1040.0])
    assert (transport.assigned, transport.patience_s) == (3, 0.5)


def test_transport_is_not_wrapped_without_dilation() -> None:
    broker = Broker()
    assert REAL.transport(broker) is broker
    assert REAL.inner(123.0) == 123.0


def test_a_run_hands_its_time_to_what_it_starts() -> None:
    with dilated(4.0, 1000.0) as slow:
        assert dilation() == slow == SLOW
    assert dilation() == REAL


@pytest.mark.parametrize("said", ["fast", "0@0", "-1@5", "4", "nan@0"])
def test_a_variable_that_says_nothing_is_refused(said: str) -> None:
    with pytest.raises(click.UsageError, match="unset it"):
        dilation({DILATION: said})

"""An input topic whose offsets went back: recreated, or a log that lost its end."""

import pytest

from headrace.errors import InputRecreated
from schemas.codec.single_object import encode
from schemas.effects import QUERIES
from schemas.records import Query
from streams.codecs.wire import Fetched
from streams.live.inbox import FetchedBatch
from streams.live.slot_readers import InputLog, SlotReaders
from tests.builders import a_pipeline
from tests.memory_transport import MemoryTransport, VirtualClock


class Read:
    """The input read from offset 7, and how often its log was checked."""

    def __init__(self, *, made_anew: bool) -> None:
        clock, self.checks, self._made_anew = VirtualClock(), 0, made_anew
        transport = MemoryTransport(a_pipeline(), clock, 0.0)
        self._slots = SlotReaders(
            a_pipeline(), transport, clock, input_log=InputLog({0: 7}, self._check)
        )
        self._slots.lease("ingress", QUERIES, (0,))

    def _check(self) -> None:
        self.checks += 1
        if self._made_anew:
            raise InputRecreated("another topic")

    def handled(self, *offsets: int) -> list[int]:
        value = encode(Query(payload=b"", id="q"))
        records = [Fetched("p.queries", 0, offset, 0.0, None, value, None) for offset in offsets]
        return [event.offset for _, event in self._slots.events(FetchedBatch(1, records))]


def test_offsets_that_go_on_are_not_checked() -> None:
    read = Read(made_anew=True)
    assert read.handled(7, 8, 10) == [7, 8, 10]
    assert read.checks == 0


@pytest.mark.parametrize("before", [(), (7, 8)])
def test_no_record_of_a_topic_that_was_made_anew_is_handled(before: tuple[int, ...]) -> None:
    read = Read(made_anew=True)
    read.handled(*before)
    with pytest.raises(InputRecreated):
        read.handled(0, 1)
    assert read.checks == 1


def test_a_log_that_lost_its_end_is_read_on() -> None:
    read = Read(made_anew=False)
    assert read.handled(7, 8, 5, 6, 7, 8, 9) == [7, 8, 5, 6, 7, 8, 9]
    assert read.checks == 1

"""A record that crashes its reader three times becomes a dead letter."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from operators.dead_letter import dead_letter
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.join import MOST_CRASHES
from schemas.codec.single_object import decode, encode
from schemas.effects import (
    DEAD_LETTERS,
    OUTPUTS,
    QUERIES,
    RESULTS,
    Arrived,
    Assign,
    Effect,
    Event,
    Woke,
)
from schemas.enumerations import ReasonCode
from schemas.records import FAILED, Answer, DeadLetter, Garbled, Value
from streams.codecs.wire import Fetched
from streams.fencing import StoodStill
from streams.live.crash_journal import CrashJournal
from streams.live.fatal_records import MOST_DEATHS, FatalRecords
from streams.live.inbox import FetchedBatch
from streams.live.live_driver import Live
from streams.topics import physical
from tests.builders import a_notice, a_pipeline, a_work, an_ended
from tests.memory_transport import MemoryTransport, VirtualClock

PIPELINE = a_pipeline(input="raw")
TOPIC = physical(PIPELINE.name, QUERIES)


class Fragile:
    """An ingress that a payload crashes, as a bug would."""

    def __init__(self) -> None:
        self._node = Ingress("ingress-0", PIPELINE, (0,), incarnation=1.0)
        self.seen: list[int] = []

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if type(event) is Woke and now == 0.0:
            return [Assign(QUERIES, (0,))]
        if type(event) is Arrived:
            if type(event.record) is not Garbled and event.offset == 1:
                raise KeyError("a bug")
            self.seen.append(event.offset)
        return self._node.handle(event, now)


def a_record(offset: int, at_s: float = 5.0) -> Fetched:
    return Fetched(TOPIC, 0, offset, at_s, None, b"x", [("headrace-id", b"q%d" % offset)])


def a_life(path: Path) -> tuple[Live, Fragile, MemoryTransport]:
    clock = VirtualClock()
    node, transport = Fragile(), MemoryTransport(PIPELINE, clock, 0.0)
    live = Live(PIPELINE, {"i": node}, transport, clock=clock, fatal=FatalRecords(path))
    live.start()
    clock.now = 5.0
    live._inbox.put(FetchedBatch(transport.assigned, [a_record(n) for n in range(3)]))
    return live, node, transport


def test_what_ends_a_role_three_times_at_one_offset_is_dead_lettered_with_its_cause(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "ingress-0.fatal-records.json"
    for _ in range(MOST_DEATHS):
        live, node, _ = a_life(path)
        with pytest.raises(KeyError):
            live.turn()
        assert node.seen == [0]
    live, node, transport = a_life(path)
    live.turn()
    assert node.seen == [0, 1, 2]
    (letter,) = [decode(each.value or b"") for each in transport.log(f"p.{DEAD_LETTERS}")]
    assert isinstance(letter, DeadLetter)
    assert (letter.offset, letter.value) == (1, b"x")
    assert letter.reason == "this record ended its reader 3 times: KeyError: 'a bug'"


def test_a_disk_that_takes_no_count_does_not_hide_what_ended_the_role(tmp_path: Path) -> None:
    (tmp_path / "no-folder").touch()
    live, _, _ = a_life(tmp_path / "no-folder" / "ingress-0.fatal-records.json")
    with pytest.raises(KeyError, match="a bug"):
        live.turn()


def test_another_record_at_that_offset_is_read(tmp_path: Path) -> None:
    fatal = FatalRecords(tmp_path / "f.json")
    for _ in range(MOST_DEATHS):
        fatal.ended_at(a_record(1), ValueError("x"))
    again = FatalRecords(tmp_path / "f.json")
    assert again.unreadable(a_record(1)) is not None
    assert again.unreadable(a_record(1, at_s=6.0)) is None
    assert again.unreadable(a_record(2)) is None


def test_a_fatal_record_with_a_header_without_a_value_is_dead_lettered(tmp_path: Path) -> None:
    record = structs.replace(a_record(1), headers=[("note", None)])  # type: ignore[list-item] # as read
    fatal = FatalRecords(tmp_path / "f.json")
    for _ in range(MOST_DEATHS):
        fatal.ended_at(record, ValueError("x"))
    found = fatal.unreadable(record)
    assert found is not None
    letter = dead_letter(Arrived(found, QUERIES, 0, 1, 5.0), found, "ingress-0", 5.0).record
    assert decode(encode(letter)) == letter
    assert isinstance(letter, DeadLetter)
    assert letter.headers == (("note", b""),)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a": 1}', '{"a": ["x", "y"]}'])
def test_truncated_file_counts_as_missing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    assert FatalRecords(path).unreadable(a_record(1)) is None


def killed(path: Path, fetched: Fetched) -> None:
    """Begin a record in a process that is killed, or hangs until then, while it handles it."""
    FatalRecords(path).began(fetched)


def test_a_record_that_crashes_or_hangs_its_reader_three_times_is_unreadable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run" / "f.json"
    for _ in range(MOST_DEATHS):
        assert FatalRecords(path).unreadable(a_record(1)) is None
        killed(path, a_record(1))
    found = FatalRecords(path).unreadable(a_record(1))
    assert found is not None
    assert found.reason == (
        "this record ended its reader 3 times: its process crashed, or was killed as it hung"
    )
    assert FatalRecords(path).unreadable(a_record(2)) is None


@pytest.mark.parametrize("at_s", [0.0, 1e9 + 0.123, (2**63 - 1) / 1e3])
def test_a_record_of_any_time_is_marked(tmp_path: Path, at_s: float) -> None:
    path = tmp_path / "f.json"
    for _ in range(MOST_DEATHS):
        killed(path, a_record(1, at_s))
    assert FatalRecords(path).unreadable(a_record(1, at_s)) is not None


@pytest.mark.parametrize("name", [b"x" * 300, b"\x1b[2J", b"\xff"])
def test_a_fatal_record_has_no_id_that_its_notice_could_not_bear(
    tmp_path: Path, name: bytes
) -> None:
    path, record = (
        tmp_path / "f.json",
        structs.replace(a_record(1), headers=[("headrace-id", name)]),
    )
    for _ in range(MOST_DEATHS):
        killed(path, record)
    found = FatalRecords(path).unreadable(record)
    assert found is not None
    assert (found.id, found.headers) == ("", (("headrace-id", name),))


def test_a_process_that_is_killed_between_two_records_blames_none(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for _ in range(MOST_DEATHS):
        fatal = FatalRecords(path)
        fatal.began(a_record(1))
        fatal.ended()
    assert FatalRecords(path).unreadable(a_record(1)) is None


def test_the_mark_names_the_topic_of_its_record(tmp_path: Path) -> None:
    path, other = tmp_path / "f.json", structs.replace(a_record(1), topic="p.rather-longer-outputs")
    for _ in range(MOST_DEATHS):
        fatal = FatalRecords(path)
        for each in (other, a_record(0), a_record(1)):
            fatal.began(each)
    again = FatalRecords(path)
    assert again.unreadable(a_record(1)) is not None
    assert again.unreadable(other) is None


def test_a_process_that_was_replaced_blames_no_record(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    for _ in range(MOST_DEATHS):
        live, node, _ = a_life(path)
        live._fence_s = 1.0
        live._fenced_s = -9.0  # as if it had been suspended
        with pytest.raises(StoodStill):
            live.turn()
        assert node.seen == []
    assert FatalRecords(path).unreadable(a_record(0)) is None


class Slow(Fragile):
    """An ingress that stands still for 6 s at a payload, as in a user's function."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if type(event) is Arrived and event.offset == 1 and type(event.record) is not Garbled:
            self._clock.now += 6.0
            return []
        return super().handle(event, now)


def test_a_record_that_takes_longer_than_a_role_may_stand_still_is_dead_lettered(
    tmp_path: Path,
) -> None:
    """Every life would end at it: the role cannot tell that it was not replaced meanwhile."""
    path = tmp_path / "f.json"
    for last in [False] * MOST_DEATHS + [True]:
        clock = VirtualClock()
        node, transport = Slow(clock), MemoryTransport(PIPELINE, clock, 0.0)
        fatal = FatalRecords(path)
        live = Live(PIPELINE, {"i": node}, transport, clock=clock, fatal=fatal, fence_s=5.0)
        live.start()
        clock.now = 5.0
        live._inbox.put(FetchedBatch(transport.assigned, [a_record(n) for n in range(3)]))
        with nullcontext() if last else pytest.raises(StoodStill):
            live.turn()
        assert node.seen == ([0, 1, 2] if last else [0])
    assert fatal.unreadable(a_record(0)) is None
    assert fatal.unreadable(a_record(2)) is None
    (letter,) = [decode(each.value or b"") for each in transport.log(f"p.{DEAD_LETTERS}")]
    assert isinstance(letter, DeadLetter)
    assert "ended its reader 3 times: StoodStill: this process stood still" in letter.reason


def test_a_combine_that_takes_longer_than_egress_may_stand_still_fails_its_query(
    tmp_path: Path,
) -> None:
    topic, pipeline = physical(PIPELINE.name, OUTPUTS), replace(PIPELINE, combine="app:join")
    log = [encode(each) for each in (a_notice(0), a_work(0, an_ended("a"), task=""))]
    for life in range(MOST_CRASHES + 1):
        clock = VirtualClock()

        def slow(values: list[Value], tasks: list[str], clock: VirtualClock = clock) -> Value:
            clock.now += 6.0
            return values

        journal = CrashJournal(tmp_path / "e.json", longest_s=2.5, clock=clock)
        node = Egress("e", pipeline, (0,), incarnation=1.0, combine=slow, journal=journal)
        transport = MemoryTransport(pipeline, clock, 0.0)
        live = Live(
            pipeline, {"e": node}, transport, clock=clock, fence_s=5.0,
            fatal=FatalRecords(tmp_path / "f.json"),
        )  # fmt: skip
        live.start()
        records = [Fetched(topic, 0, n, 0.1, None, value, None) for n, value in enumerate(log)]
        live._inbox.put(FetchedBatch(transport.assigned, records))
        with nullcontext() if life == MOST_CRASHES else pytest.raises(StoodStill):
            live.turn()
    (answer,) = [decode(each.value or b"") for each in transport.log(f"p.{RESULTS}")]
    assert isinstance(answer, Answer)
    assert (answer.outcome, answer.reason_code) == (FAILED, ReasonCode.COMBINE)

"""Reports that repeat the previous one are recognised by their bytes; other reports never are."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.codec.repeated_reports import (
    FORGET_S,
    READ_PER_S,
    SILENT_S,
    SOONER_S,
    RepeatedReports,
)
from schemas.codec.single_object import decode, encode
from schemas.effects import Heartbeat
from schemas.enumerations import NodeState
from schemas.records import Report, SlotState

MANY = 1000
STEADY = (NodeState.READY, NodeState.IDLE)


def a_report(**fields: object) -> Report:
    report = Report(
        node="cpu-0", role="worker", pipeline="postcode", epoch=7, incarnation=5.0, sent_s=100.0,
        state=NodeState.READY, device="cpu", task="read", variant="forest",
        slots=(SlotState("read", 3, 10, 2),), counts={"arrived/read/forest": 5.0}, file="a1",
        held=("x",),
    )  # fmt: skip
    return replace(report, **fields)


CROWD = [(encode(report), report) for report in (a_report(node=f"w{n}") for n in range(MANY))]


def among_many(*reports: Report) -> RepeatedReports:
    """Return the last reports of a thousand workers and of these."""
    known = RepeatedReports()
    for data, report in CROWD:
        known.remember(data, report)
    for report in reports:
        learn(known, report)
    return known


def learn(known: RepeatedReports, report: Report) -> None:
    known.remember(encode(report), report)


def test_a_report_with_other_times_counts_and_offsets_is_a_heartbeat() -> None:
    known = among_many(a_report())
    later = a_report(sent_s=100.2, slots=(), counts={"finished/read/forest": 9.0, "z": 1.0})
    assert known.beat(encode(later)) == Heartbeat("postcode", "cpu-0", 5.0, 100.2)


# Of every field whose value is news, another value.
NEWS = {
    "node": "cpu-1", "role": "ingress", "pipeline": "q", "epoch": 8, "incarnation": 6.0,
    "state": NodeState.FAILED, "device": "", "task": "reads", "variant": "", "error": "no device",
    "file": "", "held": ("x", "y"), "measured": {"read/forest": 0.5},
}  # fmt: skip


def test_every_field_is_news_or_differs_in_a_heartbeat() -> None:
    assert {*NEWS, "sent_s", "slots", "counts"} == set(Report.__struct_fields__)


@pytest.mark.parametrize("field", NEWS)
def test_a_heartbeat_never_hides_news(field: str) -> None:
    known = among_many(a_report())
    assert known.beat(encode(a_report(sent_s=100.01))) is not None
    assert known.beat(encode(a_report(sent_s=100.02, **{field: NEWS[field]}))) is None


@pytest.mark.parametrize(
    "fields",
    [{"state": NodeState.LOADING}, {"measured": {"read/v": 0.5}}, {"role": "egress"}],
)
def test_no_report_of_a_node_that_is_not_steady_is_a_heartbeat(fields: dict[str, object]) -> None:
    known = among_many(a_report(**fields))
    assert known.beat(encode(a_report(sent_s=100.01, **fields))) is None


texts = st.text(max_size=80)


@given(
    st.lists(st.builds(SlotState, texts, *[st.integers(0, 1 << 40)] * 3), max_size=3).map(tuple),
    st.dictionaries(texts, st.floats(0, 1e9), max_size=3),
    st.sampled_from(["a", "b", "n" * 63]),
    texts,
    st.lists(texts, max_size=3).map(tuple),
)
def test_whatever_a_steady_worker_does_its_next_report_is_a_heartbeat(
    slots: tuple[SlotState, ...],
    counts: dict[str, float],
    node: str,
    text: str,
    held: tuple[str, ...],
) -> None:
    first = a_report(node=node, task=text, variant=text, error=text, held=held)
    second = replace(first, sent_s=100.01, slots=slots, counts=counts)
    beat = among_many(first).beat(encode(second))
    assert beat == Heartbeat("postcode", node, 5.0, 100.01)


@pytest.mark.parametrize("sent_s", [99.9, 100.0 + SILENT_S])
def test_a_report_after_a_pause_and_one_from_the_past_are_read(sent_s: float) -> None:
    known = among_many(a_report())
    assert known.beat(encode(a_report(sent_s=sent_s))) is None


def times_read(workers: int, sent_s: Sequence[float]) -> int:
    known, read = RepeatedReports(), 0
    for at_s in sent_s:
        for number in range(workers):
            data = encode(a_report(node=f"w{number}", sent_s=at_s))
            if known.beat(data) is None:
                known.remember(data, decode(data))  # type: ignore[arg-type]
                read += 1
    return read


def test_every_report_of_a_hundred_workers_is_read_and_a_thousand_a_second_of_more() -> None:
    seconds, interval_s = 4, 0.2
    sent_s = [round(100 + interval_s * number, 3) for number in range(int(seconds / interval_s))]
    assert times_read(100, sent_s) == 100 * len(sent_s)
    every_s = MANY / READ_PER_S - SOONER_S
    assert times_read(MANY, sent_s) <= MANY * (seconds / every_s + 1)


def test_workers_that_are_gone_do_not_make_the_reports_of_others_rarer() -> None:
    known, read = RepeatedReports(), 0
    for generation in range(30):
        for number in range(100):
            name = f"pod-{generation}-{number}"
            learn(known, a_report(node=name, sent_s=100.0 + 2 * FORGET_S * generation))
    began_s = 100.0 + 2 * FORGET_S * 29
    for at_s in (began_s + 0.2 * tick for tick in range(1, 11)):
        report = a_report(node="pod-29-0", sent_s=at_s)
        if known.beat(encode(report)) is None:
            learn(known, report)
            read += 1
    assert read >= 5


@pytest.mark.parametrize("data", [b"", b"\xc3\x01", encode(a_report())[:12], b"\xff" * 40])
def test_other_bytes_are_no_heartbeat(data: bytes) -> None:
    assert among_many(a_report()).beat(data) is None

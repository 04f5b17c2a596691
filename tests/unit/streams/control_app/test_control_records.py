"""streams/control_app/control_records.py: events from the bytes of the control topics."""

import pytest

from schemas.codec.single_object import encode
from schemas.effects import COMMAND_RESULTS, COMMANDS, PLANS, Arrived
from schemas.records import Command, CommandResult, Garbled, Plan, Settings
from streams.codecs.wire import Fetched
from streams.control_app.control_records import arrived, past


def fetched(value: bytes | None) -> Fetched:
    return Fetched("headrace.commands", 0, 7, 5.0, None, value, None)


def test_commands_are_read_as_avro_and_as_json() -> None:
    command = Command(id="x", pipeline="p", action="drain", arguments={"target": "w1"})
    typed = b'{"id": "x", "pipeline": "p", "action": "drain", "arguments": {"target": "w1"}}'
    wanted = Arrived(command, COMMANDS, 0, 7, 5.0)
    assert arrived("p", COMMANDS, fetched(encode(command))) == wanted
    assert arrived("p", COMMANDS, fetched(typed)) == wanted


def test_a_plan_survives_the_wire() -> None:
    plan = Plan(
        pipeline="p",
        epoch=3,
        issued_s=1e9 + 0.1,
        reason="",
        settings=Settings(policy="static", slo_s=0.3),
    )
    assert arrived("p", PLANS, fetched(encode(plan))) == Arrived(plan, PLANS, 0, 7, 5.0)


def test_a_plan_that_is_deleted_is_no_event() -> None:
    assert arrived("p", PLANS, fetched(None)) is None
    assert arrived("p", COMMANDS, fetched(None)) is not None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"id": "x", "acton": "pause"}', "x"),
        (b"pause!", ""),
        (b"\xc3\x01rubbish", ""),
        (b'{"id": "\\ud800", "action": "replan"}', "?"),
    ],
)
def test_a_garbled_command_keeps_the_id_that_can_be_made_out(value: bytes, name: str) -> None:
    event = arrived("p", COMMANDS, fetched(value))
    assert event is not None
    assert isinstance(event.record, Garbled)
    assert (event.record.id, event.record.value) == (name, value)


def test_a_garbled_command_for_another_pipeline_is_that_ones() -> None:
    assert arrived("p", COMMANDS, fetched(b'{"id": "x", "pipeline": "q"}')) is None


def kept(topic: str, *records: tuple[str, bytes | None]) -> list[Fetched]:
    return [
        Fetched(topic, 0, offset, 5.0, key.encode(), value, None)
        for offset, (key, value) in enumerate(records)
    ]


def test_past_of_a_compacted_topic_excludes_deleted_records() -> None:
    plans = [
        Plan(
            pipeline="p", epoch=n, issued_s=1.0, reason="", settings=Settings(policy="s", slo_s=1.0)
        )
        for n in (1, 2)
    ]
    first, second = map(encode, plans)
    records = kept("headrace.plans", ("p/1", first), ("p/2", second), ("p/1", None))
    assert [event.record for event in past("p", PLANS, records)] == plans[1:]
    records = kept("headrace.plans", ("p/1", first), ("p/1", None), ("p/1", second))
    assert [event.record for event in past("p", PLANS, records)] == plans[1:]


def test_a_command_whose_result_was_deleted_counts_as_answered() -> None:
    result = CommandResult(
        id="x", pipeline="p", action="replan", ok=True, message="", epoch=1, finished_s=1.0
    )
    records = kept("r", ("p/x", encode(result)), ("p/x", None), ("q/y", None))
    (event,) = past("p", COMMAND_RESULTS, records)
    assert isinstance(event.record, CommandResult)
    assert (event.record.id, event.record.pipeline) == ("x", "p")


def test_commands_are_kept_whatever_their_key() -> None:
    commands = [encode(Command(id=i, pipeline="p", action="replan")) for i in ("x", "y")]
    records = kept("headrace.commands", ("k", commands[0]), ("k", commands[1]))
    assert len(past("p", COMMANDS, records)) == 2

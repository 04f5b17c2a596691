"""A downgrade: an older release starts on the topics that this release has written.

An older release is emulated by its released schemas alone: it reads records of the schemas that it
has, each by the newest of them, and no others.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from schemas.codec.rows import TO_ROW
from schemas.codec.schema_store import CURRENT, Schema, for_resolution, parse
from schemas.codec.single_object import CodecError, decode, encode, write_as
from schemas.effects import COMMAND_RESULTS, COMMANDS, OUTPUTS, PLANS, REPORTS, Woke, work_topic
from schemas.enumerations import PlanCause
from schemas.records import Command, CommandResult, Garbled, Notice, Record
from schemas.release import RELEASE
from streams.codecs.wire import Fetched, decoder
from streams.control_app.control_records import past
from tests.builders import a_plan, a_work, an_item
from tests.control_world import World, a_profile
from tests.control_world import a_pipeline as two_tasks
from tests.unit.schemas.codec.test_single_object import KINDS, drawn

RELEASED = Path(__file__).parents[2] / "schemas" / "avro" / "released"
OLDER = range(1, RELEASE)
PREFIX = 10  # bytes that name the schema


@dataclass(frozen=True)
class OldRelease:
    """The codec of a release: every schema up to it by prefix, and the newest one by record."""

    known: Mapping[bytes, Schema]
    newest: Mapping[str, Schema]

    def row(self, data: bytes) -> Any:
        """Return the row that the release reads from bytes; raise ``KeyError`` if it cannot."""
        return resolved(data, self.known[data[:PREFIX]], self.newest)


def old_release(number: int) -> OldRelease:
    paths = [
        path for each in range(1, number + 1) for path in (RELEASED / str(each)).glob("*.avsc")
    ]
    schemas = [parse(path.read_text()) for path in paths]
    return OldRelease({s.prefix: s for s in schemas}, {s.record: s for s in schemas})


OLD = {number: old_release(number) for number in OLDER}


def resolved(data: bytes, written_as: Schema, newest: Mapping[str, Schema]) -> Any:
    """Return the row of bytes by Avro's resolution to a release's schema of the record."""
    body = BytesIO(data)
    body.seek(PREFIX)
    read_as = newest[written_as.record]
    reader = None if read_as.prefix == written_as.prefix else for_resolution(read_as.parsed)
    row = fastavro.schemaless_reader(body, written_as.parsed, reader)
    assert body.tell() == len(data)
    return row


@contextmanager
def limited_to(release: int | None) -> Iterator[None]:
    """Write as with ``HEADRACE_WRITE_RELEASE``."""
    write_as(release)
    try:
        yield
    finally:
        write_as(None)


# --- with the limit -------------------------------------------------------------------------------

# Records that a release does not know, because it lacks the topic or the feature.
SINCE = {
    "Selection": 4, "Completion": 6, "ProfileRequest": 6, "ProfileResult": 6, "Session": 7,
    "Label": 7, "MeasuredAccuracy": 7,
}  # fmt: skip


def test_an_older_release_knows_every_record_but_those_of_later_features() -> None:
    for number, old in OLD.items():
        unknown = {name for name, since in SINCE.items() if since > number}
        assert old.newest.keys() == CURRENT.keys() - unknown


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(draws=st.data())
def test_an_older_release_reads_every_record_that_is_written_with_the_limit(
    kind: type, draws: st.DataObject
) -> None:
    record = draws.draw(drawn(kind))
    today = encode(record)
    row = TO_ROW[kind](record)
    plain = {name: value for name, value in row.items() if type(value) in (str, int, float, bool)}
    for number, old in OLD.items():
        if kind.__name__ in old.newest:
            with limited_to(number):
                written = encode(record)
            read = old.row(written)
            # The fields that the release has, with the values that they have today.
            assert repr(read) == repr(resolved(today, CURRENT[kind.__name__], old.newest))
            common = plain.keys() & read.keys()
            assert {name: read[name] for name in common} == {name: plain[name] for name in common}
            assert type(decode(written)) is kind  # by this release, after another upgrade


@pytest.mark.parametrize("cause", PlanCause)
@pytest.mark.parametrize("release", OLDER)
def test_a_plan_can_be_written_for_an_older_release_whatever_its_cause(
    cause: PlanCause, release: int
) -> None:
    # A cause of a later release used to end the control app.
    with limited_to(release):
        written = encode(a_plan(causes=(cause, PlanCause.FIRST), reason="why"))
    read = OLD[release].row(written)
    known = "causes" in read and cause not in ("sessions", "accuracy", "mix")
    assert read["reason"] == "why"
    assert read.get("causes", ()) in ((), [cause.value if known else "other", "first"])


# --- what was written before the limit ------------------------------------------------------------


def of_a_later_release(record: Record) -> bytes:
    """Return a record by a schema that this release, as the older one, does not have."""
    schema = json.loads(CURRENT[type(record).__name__].text)
    schema["fields"].append({"name": "later", "type": "string", "default": ""})
    later, body = parse(json.dumps(schema)), BytesIO()
    body.write(later.prefix)
    body.seek(0, 2)
    fastavro.schemaless_writer(body, later.parsed, TO_ROW[type(record)](record))
    return body.getvalue()


def fetched(value: bytes, offset: int = 0, key: bytes | None = None) -> Fetched:
    return Fetched("topic", 0, offset, 100.0, key, value, None)


@pytest.mark.parametrize(
    ("topic", "record"),
    [
        (work_topic("read"), a_work(0, an_item())),
        (OUTPUTS, Notice(partition=0, upto=0, queries=())),
        (PLANS, a_plan()),
    ],
)
def test_a_role_takes_a_record_of_a_later_release_as_unreadable(topic: str, record: Record) -> None:
    # Work and notices then go to the dead letters: the queries behind them would be lost, so a
    # downgrade waits until the newer release has finished them. Plans are passed over.
    found = decoder(two_tasks(), topic)(fetched(of_a_later_release(record)))
    assert isinstance(found, Garbled)
    assert "was written by a schema with the unknown fingerprint" in found.reason


def test_a_record_of_a_later_release_is_an_error_to_those_who_decode_it() -> None:
    with pytest.raises(CodecError, match="bring readers to the newer release before writers"):
        decode(of_a_later_release(a_plan()))


def begun_anew(newer: World, plans: Mapping[int, bytes]) -> World:
    """Return the world of a control app that reads back these plans by epoch; for four seconds,
    nodes follow epoch 40 of the newer release until they get a higher one."""
    world, followed = World(two_tasks(), a_profile()), changed(newer.plan, epoch=40)
    world.now = newer.now
    records = [fetched(value, n, f"postcode/{n}".encode()) for n, value in plans.items()]
    for event in past(world.pipeline.name, PLANS, records):
        world.tell(event)
    world.tell(Woke())
    workers = {name: replace(worker) for name, worker in newer.workers.items()}
    for _ in range(20):
        world.now = round(world.now + 0.2, 1)
        newest = max((followed, *world.plans), key=lambda plan: plan.epoch)
        for worker in workers.values():
            worker.plan = newest
            world.arrive(worker.report(world.now), REPORTS)
        world.tell(Woke())
    return world


@pytest.mark.parametrize("readable", [(), (2,)], ids=["no plan", "an early plan"])
def test_a_control_app_supersedes_plans_of_a_later_release_that_nodes_follow(
    readable: tuple[int, ...],
) -> None:
    newer = World(two_tasks(), a_profile()).start("w0", "w1", "w2")
    newer.run(1.0)
    plans = {epoch: encode(changed(newer.plan, epoch=epoch)) for epoch in readable}
    plans |= {n: of_a_later_release(changed(newer.plan, epoch=n)) for n in (39, 40)}
    older = begun_anew(newer, plans)
    assert older.plan.epoch == 41
    assert {lease.worker for lease in older.plan.leases} == {"w0", "w1", "w2"}


def test_a_command_of_a_later_release_is_refused_with_the_reason() -> None:
    world = World(two_tasks(), a_profile()).start("w0", "w1", "w2")
    command = Command(id="c", pipeline=world.pipeline.name, action="replan")
    value = of_a_later_release(command)
    (event,) = past(world.pipeline.name, COMMANDS, [changed(fetched(value), at_s=world.now)])
    world.tell(event)
    assert [(result.ok, result.id) for result in world.results] == [(False, "commands@0")]
    assert "unknown fingerprint" in world.results[0].message


def test_results_of_commands_of_a_later_release_are_passed_over() -> None:
    result = CommandResult(
        id="c", pipeline="p", action="replan", ok=True, message="", epoch=1, finished_s=1.0
    )
    (event,) = past("p", COMMAND_RESULTS, [fetched(of_a_later_release(result), 0, b"p/c")])
    assert isinstance(event.record, Garbled)

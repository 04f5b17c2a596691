"""Records already judged by the history: which ones the control app's driver passes on."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from schemas.codec.single_object import encode
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Effect,
    Event,
    Heartbeats,
    Observer,
    Send,
    Woke,
)
from schemas.enumerations import NodeState
from schemas.records import Command, CommandResult, Plan, Report, Settings
from streams.codecs.size_gate import RecordTooLarge
from streams.codecs.wire import Fetched
from streams.control_app import control_records
from streams.control_app.control_driver import GONE_S, STALL_S, ControlDriver
from streams.control_app.control_effects import READ
from streams.control_app.control_records import LED_WITHIN_S
from streams.control_app.control_writer import Write
from streams.control_app.election import TopicGone
from streams.kafka.admin.topic_copies import Copies
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.missing_copies import Ask
from streams.observers.control_standing import ControlStanding
from streams.topics import Place, physical
from tests.builders import a_plan
from tests.control_world import a_pipeline
from tests.virtual_loop import VirtualLoop

PIPELINE = a_pipeline()
COMMAND = Command(id="c", pipeline=PIPELINE.name, action="replan")
ANSWER = CommandResult(
    id="c", pipeline=PIPELINE.name, action="replan", ok=True, message="done", epoch=1,
    finished_s=0.0,
)  # fmt: skip


class Inputs:
    """Three plans are on the topic; a purge has deleted them, so the history holds none."""

    def ends(self) -> dict[int, int]:
        return {}

    def done(self) -> dict[int, int]:
        return {}

    def shared_ends(self) -> dict[str, int]:
        return {REPORTS: 0, PLANS: 3, COMMAND_RESULTS: 0}

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]:
        return since, False

    def past(self) -> list[Arrived]:
        return []


class Replaced(Inputs):
    """Another app took charge and answered the command that this app is about to answer."""

    def __init__(self) -> None:
        self.read_back = 0

    def past(self) -> list[Arrived]:
        self.read_back += 1
        return [] if self.read_back == 1 else [Arrived(ANSWER, COMMAND_RESULTS, 0, 0, 0.0)]

    def written_by_others(
        self, since: Mapping[str, int], own: Collection[tuple[str, int]]
    ) -> tuple[Mapping[str, int], bool]:
        return {PLANS: 3, COMMAND_RESULTS: 1}, since[COMMAND_RESULTS] == 0 and self.read_back == 1


class Leaderless(Inputs):
    """The reports topic has no leader for the first looks."""

    def __init__(self, looks: float) -> None:
        self._looks = looks

    def shared_ends(self) -> dict[str, int]:
        self._looks -= 1
        if self._looks >= 0:
            raise BrokerError("Local: Unknown partition")
        return super().shared_ends()


class Planners:
    def close(self) -> None:
        """End nothing."""


class Recorder:
    """A controller that only records its input."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        return []


class Answering(Recorder):
    """A controller that answers each command whose result it has not read."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        super().handle(event, now)
        known = any(isinstance(e, Arrived) and e.record == ANSWER for e in self.events)
        asked = isinstance(event, Arrived) and type(event.record) is Command
        return [Send(COMMAND_RESULTS, ANSWER, key="k")] if asked and not known else []


async def no_write(*_: object) -> int:
    raise AssertionError("nothing is to be written")


async def slow_write(*_: object) -> int:
    await asyncio.sleep(0.4)
    return 0


def told(
    feed: Callable[[ControlDriver, float], None],
    inputs: Inputs | None = None,
    seconds: float = 1.0,
    observers: Sequence[Observer] = (),
    make: Callable[[], Recorder] = Recorder,
    write: Write = no_write,
    replaced: Callable[[], bool] = lambda: False,
    copies: Ask = lambda _: (),
) -> list[Event]:
    """Return events of a controller whose driver is fed while it starts; raise what ends it."""
    loop, controller, inputs = VirtualLoop(), make(), inputs or Inputs()

    async def play() -> None:
        driver = ControlDriver(
            PIPELINE, lambda: controller, KafkaConfig("127.0.0.1:1"), observers, clock=loop.time,  # type: ignore[arg-type,return-value]
            planners=Planners(), inputs=inputs, past=inputs.past, replaced=replaced,  # type: ignore[arg-type]
            copies=copies,
        )  # fmt: skip
        driver.assigned([physical(PIPELINE.name, logical) for logical in READ])
        feed(driver, loop.time())
        served = asyncio.create_task(driver.run(write))
        await asyncio.wait([served], timeout=seconds)
        if served.done():
            served.result()
        served.cancel()
        await asyncio.wait([served])

    try:
        loop.run_until_complete(play())
    finally:
        loop.close()
    return controller.events


def heard(offsets: Sequence[int]) -> list[Event]:
    """Return events of a controller whose driver reads plans at these offsets while it starts."""

    def feed(driver: ControlDriver, now: float) -> None:
        for offset in offsets:
            plan = Plan(
                pipeline=PIPELINE.name, epoch=offset + 1, issued_s=0.0, reason="",
                settings=Settings(policy="static", slo_s=1.0),
            )  # fmt: skip
            driver.arrived(PLANS, SimpleNamespace(
                topic=physical(PIPELINE.name, PLANS), partition=0, offset=offset,
                timestamp=now, key=b"k", value=encode(plan),
            ))  # fmt: skip

    return told(feed)


def test_deleted_plans_that_the_group_reads_from_the_beginning_are_not_heard() -> None:
    """After `down --purge` the group has no offsets: Faust also delivers plans under tombstones."""
    events = heard([0, 1, 2, 3])
    epochs = [e.record.epoch for e in events if isinstance(e, Arrived) and type(e.record) is Plan]
    assert epochs == [4]
    assert any(isinstance(event, Woke) for event in events)


def reports(count: int, sent_s: float) -> list[Fetched]:
    """Return a batch with one report of each worker."""
    made = [
        Report(
            node=f"w{number}", role="worker", pipeline=PIPELINE.name, epoch=0, incarnation=1.0,
            sent_s=sent_s, state=NodeState.IDLE,
        )
        for number in range(count)
    ]  # fmt: skip
    topic = physical(PIPELINE.name, REPORTS)
    return [Fetched(topic, 0, 0, sent_s, None, encode(each), None) for each in made]


def test_repeated_reports_of_many_workers_arrive_as_one_event() -> None:
    def feed(driver: ControlDriver, now: float) -> None:
        driver.reported(reports(500, 100.0))
        driver.reported(reports(500, 100.2))

    events = told(feed)
    arrived = [e.record.node for e in events if isinstance(e, Arrived)]  # type: ignore[union-attr]
    (beats,) = [event.beats for event in events if isinstance(event, Heartbeats)]
    names = [f"w{number}" for number in range(500)]
    assert arrived == names
    assert [(beat.worker, beat.sent_s) for beat in beats] == [(name, 100.2) for name in names]


class Publishing(Recorder):
    """A controller that publishes a record per report, which the broker accepts slowly."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        super().handle(event, now)
        report = isinstance(event, Arrived) and type(event.record) is Report
        return [Send(COMMAND_RESULTS, ANSWER, key="k")] if report else []


def test_workers_whose_reports_wait_for_the_broker_are_heard_before_anything_else() -> None:
    """Otherwise earlier events would make them count as lost before their reports."""

    def feed(driver: ControlDriver, now: float) -> None:
        driver.reported(reports(2, now))
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, lambda: driver.reported(reports(2, now + 0.3)))

    told_of = told(feed, seconds=0.7, make=Publishing, write=slow_write)
    found = [
        [(beat.worker, beat.sent_s) for beat in event.beats]
        if isinstance(event, Heartbeats)
        else event.record.node  # type: ignore[union-attr]
        for event in told_of
        if not isinstance(event, Woke)
    ]
    assert found == ["w0", [("w0", 0.0), ("w1", 0.0), ("w0", 0.3), ("w1", 0.3)], "w1"]


class Seen:
    """An observer of sent records."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.effects += [effect for effect in effects if isinstance(effect, Send)]


def command(driver: ControlDriver, now: float, offset: int = 0) -> None:
    """Feed a command."""
    driver.arrived(COMMANDS, SimpleNamespace(
        topic=physical("", COMMANDS), partition=0, offset=offset, timestamp=now, key=b"c",
        value=encode(COMMAND),
    ))  # fmt: skip


def test_a_command_whose_plan_the_topic_does_not_take_has_failed() -> None:
    """Its result said that the plan was in force, and later its log did. The next plans were built
    on the one that nobody had."""
    written: list[tuple[str, bytes | None]] = []

    class Planning(Recorder):
        def handle(self, event: Event, now: float) -> list[Effect]:
            asked = isinstance(event, Arrived) and type(event.record) is Command
            plan = Send(PLANS, a_plan(), key="p")
            return [plan, Send(COMMAND_RESULTS, ANSWER, key="k")] if asked else []

    async def write(topic: str, value: bytes | None, *_: object) -> int:
        if topic == physical("", PLANS):
            raise RecordTooLarge("raise its limit")
        written.append((topic, value))
        return len(written)

    observer, inputs = Seen(), Slow()
    told(command, inputs, observers=(observer,), make=Planning, write=write)
    why = "its plan was not published: raise its limit"
    failed = replace(ANSWER, ok=False, message=why, epoch=a_plan().epoch - 1)
    assert written == [(physical("", COMMAND_RESULTS), encode(failed))]
    assert observer.effects == [Send(COMMAND_RESULTS, failed, key="k")]
    assert inputs.read_back == 2


def test_a_command_that_a_successor_has_answered_is_not_answered_again() -> None:
    """An app with a cut connection learned of its successor only after the successor's answer."""

    def feed(driver: ControlDriver, now: float) -> None:
        command(driver, now)
        asyncio.get_running_loop().call_later(0.5, driver.tick)

    replaced = Replaced()
    events = told(feed, replaced, make=Answering)
    records = [event.record for event in events if isinstance(event, Arrived)]
    assert records == [COMMAND, ANSWER]
    assert replaced.read_back == 2


def test_an_app_that_was_replaced_gives_way_until_the_group_assigns_it_the_topics_again() -> None:
    """Two apps in charge after a half-open connection superseded each other, and both read back."""

    def feed(driver: ControlDriver, now: float) -> None:
        command(driver, now)
        loop = asyncio.get_running_loop()
        loop.call_later(0.3, driver.tick)
        loop.call_later(0.4, lambda: command(driver, now, offset=1))
        topics = [physical(PIPELINE.name, logical) for logical in READ]
        if again:
            loop.call_later(0.5, lambda: driver.assigned(topics))

    for again in (False, True):
        inputs = Replaced()
        events = told(feed, inputs, make=Answering, replaced=lambda: True)
        assert inputs.read_back == 1 + again
        records = [event.record for event in events if isinstance(event, Arrived)]
        assert records == [COMMAND, *[ANSWER] * again]


@pytest.mark.parametrize("batches", [1, 2])
def test_an_overtaken_app_writes_nothing_for_the_other_reports_of_a_batch(batches: int) -> None:
    """Only the first write was refused; the next reports led to plans on top of a successor's."""

    def feed(driver: ControlDriver, now: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(batches):
            loop.call_later(0.3, lambda: driver.reported(reports(3, now)))

    told(feed, Replaced(), make=Publishing, replaced=lambda: True)


class Slow(Inputs):
    """A history that counts how often it is read."""

    def __init__(self) -> None:
        self.read_back = 0

    def past(self) -> list[Arrived]:
        self.read_back += 1
        return []


async def not_taken(*_: object) -> int:
    raise TimeoutError


@pytest.mark.parametrize("replaced", [True, False])
def test_an_app_whose_record_the_broker_did_not_take_asks_whether_it_was_replaced(
    replaced: bool,
) -> None:
    """It read back and continued beside its successor, and both published plans of one epoch."""

    def feed(driver: ControlDriver, now: float) -> None:
        command(driver, now)
        asyncio.get_running_loop().call_later(0.3, driver.tick)

    inputs = Slow()
    told(feed, inputs, make=Answering, write=not_taken, replaced=lambda: replaced)
    assert inputs.read_back == (1 if replaced else 2)


def test_the_topic_that_took_no_record_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """With two copies of three in sync, where all must be, the line was "did not take it"."""
    told(lambda driver, now: command(driver, now), make=Answering, write=not_taken)
    (line,) = [r for r in caplog.records if r.event == "control.unpublished"]  # type: ignore[attr-defined]
    topic = physical(PIPELINE.name, COMMAND_RESULTS)
    assert line.fields["topic"] == topic  # type: ignore[attr-defined]
    assert f"{topic!r} took no record within 5 s" in line.getMessage()


def test_an_app_waits_while_copies_of_a_topic_that_took_no_record_are_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It read its topics back and planned anew again and again, with two warnings each time."""
    caplog.set_level(logging.INFO)
    topic, asked = physical(PIPELINE.name, COMMAND_RESULTS), list[set[Place]]()

    def copies(places: Collection[Place]) -> list[Copies]:
        asked.append(set(places))
        return [Copies(topic, 0, copies=3, in_sync=1 if len(asked) < 4 else 3, needed=2, led=True)]

    def feed(driver: ControlDriver, now: float) -> None:
        command(driver, now)
        loop = asyncio.get_running_loop()
        for tenth in range(1, 300):
            loop.call_later(tenth / 10, driver.tick)

    inputs = Slow()
    told(feed, inputs, seconds=29.0, make=Answering, write=not_taken, copies=copies)
    assert asked == [{(topic, -1)}] * 4
    assert inputs.read_back == 2  # at the start, and once the copies were back
    assert [r.event for r in caplog.records if r.levelno > logging.DEBUG and r.event != "log"] == [  # type: ignore[attr-defined]
        "control.began", "control.unpublished", "broker.copies_missing", "broker.copies_back",
        "control.stalled", "control.began",
    ]  # fmt: skip


def test_an_app_that_stood_still_by_the_clock_of_roles_reads_back_what_others_did() -> None:
    """That clock includes the time for which the host was suspended, as do the ages of reports."""

    def feed(driver: ControlDriver, now: float) -> None:
        asyncio.get_running_loop().call_later(STALL_S + 1.0, driver.tick)

    inputs = Slow()
    told(feed, inputs, seconds=STALL_S + 2.0)
    assert inputs.read_back == 2


def nothing(driver: ControlDriver, now: float) -> None:
    """Feed nothing."""


def test_an_app_exports_whether_it_is_in_charge() -> None:
    begins, ends = ControlStanding(PIPELINE.name), ControlStanding(PIPELINE.name)
    told(nothing, observers=(begins,))
    assert ("control_in_charge", (), 1.0) in begins.samples()
    told(lambda driver, now: driver.assigned([]), observers=(ends,))
    assert ("control_in_charge", (), 0.0) in ends.samples()


def test_a_rebalance_that_leaves_an_app_in_charge_begins_no_term() -> None:
    """It forgot when workers were last heard and took 2 s longer to notice a dead one."""
    topics = [physical(PIPELINE.name, logical) for logical in READ]
    events = told(lambda driver, now: driver.assigned(topics))
    assert sum(isinstance(event, Woke) for event in events) == 1
    events = told(lambda driver, now: (driver.assigned([]), driver.assigned(topics)))
    assert sum(isinstance(event, Woke) for event in events) == 2


@pytest.mark.parametrize("back", [True, False])
def test_an_app_ends_once_a_topic_of_its_own_stays_away(back: bool) -> None:
    """The group omits a topic that has no leader at the moment, and a deleted one."""
    topics = [physical(PIPELINE.name, logical) for logical in READ]

    def feed(driver: ControlDriver, now: float) -> None:
        loop = asyncio.get_running_loop()
        driver.assigned([physical(PIPELINE.name, COMMANDS)])
        if back:
            loop.call_later(GONE_S / 2, lambda: driver.assigned(topics))
        loop.call_later(GONE_S + 0.1, driver.tick)

    ends = pytest.raises(TopicGone, match=r"the broker has lost headrace\.plans")
    with nullcontext() if back else ends:
        told(feed, seconds=2 * GONE_S)


def test_a_standby_that_is_assigned_anew_no_longer_takes_the_broker_for_away() -> None:
    def outage(driver: ControlDriver, now: float) -> None:
        driver.connectivity.failed("", none_left=True)
        driver.connectivity.look(now)
        assert driver.connectivity.away
        driver.assigned([])
        assert not driver.connectivity.away

    told(outage)


def test_an_app_that_takes_charge_waits_for_a_partitions_new_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after the loss of one of three brokers: the others answer."""
    monkeypatch.setattr(control_records, "reachable", lambda kafka: True)
    assert any(isinstance(e, Woke) for e in told(nothing, Leaderless(looks=5), seconds=10.0))


def test_an_app_ends_if_no_leader_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_records, "reachable", lambda kafka: True)
    with pytest.raises(BrokerError, match="Unknown partition"):
        told(nothing, Leaderless(looks=float("inf")), seconds=2 * LED_WITHIN_S)

"""control/estimation/operator_paces.py: what operators take on a tier, over their profile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_in

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from control.estimation.operator_paces import (
    KEPT_S,
    MOST,
    OperatorPaces,
    StageSeconds,
    extra_s,
    paces_of,
)
from control.policies.compass.search.placement_factors import model_bytes, session_deployment
from control.policies.compass.search.pricing import priced
from control.problem.paces import OTHERS, Paces, pace_of
from schemas.records import Report, Session, SessionChoice, SessionPlan, SessionStage
from tests.session_world import EVERY_LINK, a_space

SPACE = replace_in(a_space(), links=EVERY_LINK)
SCAN, READ = "scan/v@scale=1", "read/v@votes=1"
CHOICE = SessionChoice(
    settings={"scan": SCAN, "read": READ}, tiers={"scan": "handheld", "read": "depot"},
    quarters={"scan": 0, "read": 4}, latency_s=0.03, run_s={"scan": 0.01, "read": 0.02},
)  # fmt: skip


def a_plan(session: str, number: int, quarters: int) -> SessionPlan:
    stages = (
        SessionStage(
            task="scan", setting=SCAN, tier="handheld", device=f"handheld-{number}", slot=number,
            quarters=0,
        ),
        SessionStage(
            task="read", setting=READ, tier="depot", device="depot-0", slot=0,
            quarters=quarters,
        ),
    )  # fmt: skip
    return SessionPlan(session=session, number=1, slo_s=0.04, stages=stages, admits=True)


def a_session(name: str, choice: SessionChoice = CHOICE) -> Session:
    return Session(
        id=name, pipeline="p", state="serving", slo_s=0.04, samples="workload@0", plans=(choice,),
        chosen=0,
    )  # fmt: skip


class Workers:
    """Workers of two sessions, on a depot and two handhelds; tests run batches of one item. Plans
    ``beside`` run, too. The session with the number ``asked`` has queries."""

    def __init__(
        self, choice: SessionChoice = CHOICE, items_each: int = 1, other: SessionChoice = CHOICE,
        beside: Sequence[SessionPlan] = (), asked: int = 0,
    ) -> None:  # fmt: skip
        self.paces = OperatorPaces(SPACE)
        self.sessions = {"cam": a_session("cam", choice), "pad": a_session("pad", other)}
        self.counts: dict[str, dict[str, float]] = {}
        plans = {
            name: a_plan(name, number, each.plans[0].quarters["read"])
            for number, (name, each) in enumerate(self.sessions.items())
        }
        running = (*plans.values(), *beside)
        self.paces.serves(plans, running, self.sessions.__getitem__, 0.0)
        children = {f"finished/{SCAN}": 9.0, f"children/{SCAN}/read": 9.0 * items_each}
        self.report(f"handheld-{asked}-scan", children, 0.0)

    def report(self, worker: str, counts: Mapping[str, float], at_s: float) -> None:
        given = Report(
            node=worker, role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=at_s,
            state="ready", counts=counts,
        )  # fmt: skip
        self.paces.take(given, at_s)

    def run(self, worker: str, setting: str, batches: int, each_s: float, at_s: float) -> None:
        counts = self.counts.setdefault(worker, {})
        for what, more in (
            ("batches", batches), ("finished", batches), ("busy_s", batches * each_s)
        ):  # fmt: skip
            name = f"{what}/{setting}"
            counts[name] = counts.get(name, 0.0) + more
        self.report(worker, dict(counts), at_s)

    def read(self, *each_s: float, batches: int = 5) -> None:
        """Run batches of the reader on the depot, ``each_s`` in each report; the first loads."""
        for second, seconds in enumerate((9.0, *each_s)):
            self.run("depot-0-read", READ, batches, seconds, float(second))


def test_a_device_that_became_slower_shows_after_thirty_batches() -> None:
    workers = Workers()
    workers.read(*[0.026] * 5)
    assert workers.paces.of("cam", 6.0) == {}
    workers.run("depot-0-read", READ, 5, 0.026, 6.0)
    expected = {("read/v", "depot"): 1.3, (OTHERS, "depot"): 1.3}
    assert workers.paces.of("cam", 6.0) == pytest.approx(expected)
    assert workers.paces.of("pad", 6.0) == pytest.approx(expected)
    assert workers.paces.extra_s(workers.sessions["cam"], 6.0) == pytest.approx(0.006)


@pytest.mark.parametrize(
    ("items_each", "each_s", "batches"),
    [
        (1, [0.0205] * 8, 5),  # as profiled
        (0, [0.04] * 8, 5),  # without counts of the stage before
        (1, [*[0.02] * 20, 1.0, *[0.02] * 19], 1),  # a stall: one batch took a second
        (1, [*[0.04] * 10, *[0.02] * 30], 5),  # a slow device that has recovered
    ],
)
def test_a_device_that_is_not_slower_for_long_has_no_pace(
    items_each: int, each_s: list[float], batches: int
) -> None:
    workers = Workers(items_each=items_each)
    workers.read(*each_s, batches=batches)
    assert workers.paces.of("cam", len(each_s) + 1.0) == {}


@pytest.mark.parametrize(("each_s", "expected"), [(0.01, {}), (0.013, 1.3), (0.02, 2.0)])
def test_a_query_of_two_items_is_profiled_with_both(
    each_s: float, expected: float | dict[str, float]
) -> None:
    """Else its operators would look twice as fast as profiled."""
    workers = Workers(items_each=2)
    workers.read(*[each_s] * 8)
    found = workers.paces.of("cam", 9.0)
    assert found.get(("read/v", "depot"), {}) == pytest.approx(expected)


@pytest.mark.parametrize("asked", [0, 1])
def test_a_session_without_queries_does_not_hide_the_pace_of_a_shared_device(asked: int) -> None:
    workers = Workers(items_each=2, asked=asked)
    workers.read(*[0.02] * 8)
    assert workers.paces.of("cam", 9.0)["read/v", "depot"] == pytest.approx(2.0)


def test_a_faster_device_shows_too() -> None:
    workers = Workers()
    workers.read(*[0.01] * 8)
    assert pace_of(workers.paces.of("cam", 9.0), "read/w", "depot") == pytest.approx(0.5)


def test_a_pace_is_forgotten() -> None:
    workers = Workers()
    workers.read(*[0.04] * 10)
    assert workers.paces.of("cam", 10.0 + KEPT_S)
    assert workers.paces.of("cam", 10.5 + KEPT_S) == {}


def test_a_forgotten_pace_does_not_come_back_with_the_next_batch() -> None:
    """The device may have recovered in an hour without batches."""
    workers = Workers()
    workers.read(*[0.04] * 10)
    workers.run("depot-0-read", READ, 5, 0.02, 3600.0)
    assert workers.paces.of("cam", 3600.0) == {}
    for second in range(1, 7):
        workers.run("depot-0-read", READ, 5, 0.026, 3600.0 + second)
    assert workers.paces.of("cam", 3606.0)["read/v", "depot"] == pytest.approx(1.27, abs=0.01)


def test_a_pace_outlives_the_session_that_showed_it() -> None:
    workers = Workers()
    workers.read(*[0.04] * 10)
    workers.paces.serves({}, (), workers.sessions.__getitem__, 11.0)
    assert workers.paces.of("new", 12.0)


def test_a_session_has_the_pace_of_its_own_device_only() -> None:
    workers = Workers()
    for second in range(10):
        workers.run("handheld-1-scan", SCAN, 5, 0.03, float(second))
    assert workers.paces.of("cam", 10.0) == {}
    assert workers.paces.of("pad", 10.0)["scan/v", "handheld"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("took_s", "pace"),
    [(0.03, 1.0), (0.04, 1.0), (0.06, 1.5), (0.01, 0.5), (9.0, MOST), (0.001, 1 / MOST)],
)
def test_times_within_a_share_are_as_planned(took_s: float, pace: float) -> None:
    """20 ms on the whole device, 40 ms on half of it."""
    half = StageSeconds("", "read/v", "depot", batched=False, whole_s=0.02, most_s=0.04)
    assert half.ran(1, 1, took_s).stretch == pytest.approx(pace)


def test_batches_take_longer_than_single_items() -> None:
    seats = StageSeconds("", "read/v", "depot", batched=True, whole_s=0.02, most_s=0.02)
    assert seats.ran(2, 8, 2 * 0.02 * 1.36).stretch == pytest.approx(1.0)
    alone = replace_in(seats, batched=False)
    assert alone.ran(2, 8, 2 * 0.08).stretch == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("known", "others"),
    [
        ({"read/v": 1.3}, 1.3),
        ({"read/v": 1.3, "scan/v": 2.0}, 1.3),  # the device, at least
        ({"read/v": 1.3, "scan/v": 1.02}, 1.0),  # a wrong profile of read/v
        ({"read/v": 1.3, "scan/v": 0.5}, 1.0),
        ({"read/v": 0.7, "scan/v": 0.5}, 0.7),
        ({}, 1.0),
    ],
)
def test_other_variants_have_the_pace_that_all_known_ones_share(
    known: Mapping[str, float], others: float
) -> None:
    paces = paces_of({(variant, "depot"): pace for variant, pace in known.items()})
    assert pace_of(paces, "read/w", "depot") == others
    assert pace_of(paces, "read/w", "cloud") == 1.0
    for variant, pace in known.items():
        assert pace_of(paces, variant, "depot") == (1.0 if pace == 1.02 else pace)


PACE = st.sampled_from([0.5, 0.8, 1.0, 1.3, 2.0])
PACES = st.dictionaries(
    st.sampled_from([(v, t) for v in (OTHERS, "scan/v", "read/v", "read/w") for t in SPACE.tiers]),
    PACE,
)


@given(before=PACES, after=PACES)
def test_extra_seconds_are_the_difference_of_composed_latencies(
    before: Paces, after: Paces
) -> None:
    """``extra_s`` of a plan priced at the paces before is what composing at those after adds."""
    seconds, configuration = [0.01, 0.02], 3
    memory = model_bytes(SPACE)
    was = session_deployment(SPACE.with_paces(before), memory)
    now = session_deployment(SPACE.with_paces(after), memory)
    ran = np.array([seconds]), np.zeros((1, 3)), [configuration]
    latency = [each.latency(*ran)[0] for each in (was, now)]  # of every placement
    space = SPACE.space
    for placement in range(space.placement_count):
        tiers = space.placed(placement)
        settings = {task: SPACE.setting(task, configuration) for task in tiers}
        choice = SessionChoice(
            settings=settings, tiers=tiers, quarters=dict.fromkeys(tiers, 4),
            run_s={
                task: each_s / SPACE.tiers[tiers[task]].speed
                for task, each_s in zip(tiers, seconds, strict=True)
            },
            paces={
                task: pace_of(before, settings[task].partition("@")[0], tiers[task])
                for task in tiers
            },
        )  # fmt: skip
        more = latency[1][placement] - latency[0][placement]
        assert extra_s(SPACE, choice, after) == pytest.approx(more, abs=1e-9)


def test_a_plan_is_priced_with_paces_and_keeps_its_profiled_seconds() -> None:
    paces = {("read/v", "depot"): 1.3}
    slow = session_deployment(SPACE.with_paces(paces), model_bytes(SPACE))
    usual = session_deployment(SPACE, model_bytes(SPACE))
    seconds, sent = np.array([0.01, 0.02]), np.zeros(3)
    for plan in priced(slow, 0, seconds, sent, 0.2):
        stretch = [1 if q == 0 else 4 / q for q in plan.shares]
        factors = usual.slowdown[:, plan.placement]
        assert plan.run_s == pytest.approx(seconds * factors)
        on_depot = SPACE.space.placed(plan.placement)["read"] == "depot"
        pace = [1.0, 1.3 if on_depot else 1.0]
        assert plan.latency_s == pytest.approx(np.sum(seconds * factors * pace * stretch))


def test_the_first_batch_of_a_setting_loads_it() -> None:
    """The worker is known already, by batches of another setting."""
    workers = Workers()
    workers.run("depot-0-read", "read/w@votes=1", 5, 0.02, 0.0)
    for second in range(1, 9):
        workers.run("depot-0-read", READ, 20, 0.08 if second == 1 else 0.02, float(second))
        assert workers.paces.of("cam", float(second)) == {}


def scanning_on_the_depot(quarters: int) -> SessionPlan:
    """Return a plan of another task on the readers' device."""
    (_, read) = a_plan("tab", 9, quarters).stages
    scan = replace(read, task="scan", setting=SCAN)
    return SessionPlan(session="tab", number=1, slo_s=1.0, stages=(scan,), admits=False)


@pytest.mark.parametrize(("others", "pace"), [(0, 2.0), (1, 1.5), (2, 1.0), (3, 1.0)])
def test_a_part_of_a_device_takes_longer_only_beside_other_tasks(others: int, pace: float) -> None:
    """20 ms take 40. Sessions on halves of a device that became twice as slow stayed there; their
    queries queued."""
    half = replace(CHOICE, quarters={"scan": 0, "read": 2})
    beside = [scanning_on_the_depot(others)] if others else []
    workers = Workers(half, other=half, beside=beside)
    workers.read(*[0.04] * 8)
    assert pace_of(workers.paces.of("cam", 9.0), "read/v", "depot") == pytest.approx(pace)


def test_sessions_of_one_setting_are_planned_with_their_mean() -> None:
    """Their items take 20 and 30 ms by the settings before them; on half a device, the longer ones
    may take 60 ms."""
    shared = replace(CHOICE, quarters={"scan": 0, "read": 2}, run_s={"scan": 0.01, "read": 0.03})
    workers = Workers(other=shared, beside=[scanning_on_the_depot(2)])
    workers.read(*[0.04] * 8)
    assert workers.paces.of("cam", 9.0) == {}
    for each_s, pace in ((0.05, 2.0), (0.0125, 0.5)):
        workers = Workers(other=replace(CHOICE, run_s={"scan": 0.01, "read": 0.03}))
        workers.read(*[each_s] * 8)
        assert workers.paces.of("cam", 9.0)["read/v", "depot"] == pytest.approx(pace)


def test_short_batches_count_for_less() -> None:
    """A batch of 0.25 ms counts as a tenth: a stall of the machine is longer than itself."""
    short = replace(CHOICE, run_s={"scan": 0.01, "read": 0.00025})
    workers = Workers(short, other=short)
    workers.read(*[0.0005] * 10, batches=10)
    assert workers.paces.of("cam", 11.0) == {}
    workers = Workers(short, other=short)
    workers.read(*[0.0005] * 40, batches=10)
    assert workers.paces.of("cam", 41.0)["read/v", "depot"] == pytest.approx(2.0)


def test_a_part_of_a_device_takes_its_pace_on_the_longer_time() -> None:
    half = replace(CHOICE, quarters={"scan": 0, "read": 2})
    assert extra_s(SPACE, half, {("read/v", "depot"): 1.5}) == pytest.approx(0.02)

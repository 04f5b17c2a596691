"""headrace/fidelity/payments.py: what batches were charged, by reports, and how long they wait."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headrace.fidelity.payments import Payments, RecordedRun, payments
from schemas.enumerations import NodeState
from schemas.records import Report
from tests.unit.headrace.simulation.test_paid_batches import RATE, Asked, live

MEDIAN_S = 0.01


def a_report(sent_s: float, charged_s: float, task: str = "read", worker: str = "w") -> Report:
    return Report(
        node=worker, role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=sent_s,
        state=NodeState.READY, counts={f"charged_s/{task}/v": charged_s, "batches/read/v": 1.0},
    )  # fmt: skip


def recorded(asked: Asked, blocked_s: float = 0.0) -> tuple[list[RecordedRun], list[Report]]:
    """Return the batches that a worker runs, and its report after each."""
    ran, reports, charged_s = [], [], 0.0
    for began_s, ended_s, used_s in live(asked, blocked_s):
        ran.append(RecordedRun("w", "read", began_s, ended_s, MEDIAN_S))
        charged_s += used_s
        reports.append(a_report(ended_s, charged_s))
    return ran, reports


def net_s(ran: Sequence[RecordedRun], found: Payments) -> list[float]:
    """Return the seconds that each batch ran."""
    return [x.finished_s - x.started_s - s for x, s in zip(ran, found.waits_s, strict=True)]


@given(st.lists(st.floats(0.0, 0.5), max_size=30))
def test_a_recording_tells_what_batches_ran(gaps_s: list[float]) -> None:
    ran, reports = recorded([(gap_s, 1.5 * MEDIAN_S) for gap_s in gaps_s])
    for told in ((), reports):
        found = payments(ran, {"w": RATE}, told)
        assert net_s(ran, found) == pytest.approx([1.5 * MEDIAN_S] * len(ran), abs=1e-6)


def test_a_batch_ran_for_the_least_time_at_least() -> None:
    ran = [RecordedRun("w", "read", 0.0, 0.05, 0.1), RecordedRun("w", "read", 0.05, 0.45, 0.1)]
    assert payments(ran, {"w": RATE}, ()).waits_s == [0.0, pytest.approx(0.3)]


@pytest.mark.parametrize("gap_s", [0.0, 0.4])
def test_what_batches_are_charged_is_known_whether_or_not_they_wait(gap_s: float) -> None:
    """Each uses 12 of its 20 ms on a core. Without a wait, nothing in the answers shows it."""
    asked = [(0.4 if number % 4 == 0 else gap_s, 0.012) for number in range(200)]
    ran, reports = recorded(asked, blocked_s=0.008)
    found = payments(ran, {"w": RATE}, reports)
    assert found.charged == {"read": {0: pytest.approx(1.2)}}
    assert net_s(ran, found) == pytest.approx([0.02] * len(ran), abs=1e-6)
    assert (max(found.waits_s) > 0.0) is (gap_s == 0.0)


def test_all_batches_together_are_charged_what_was_reported() -> None:
    """Some ran for less than the others are charged."""
    asked = [(0.4, 0.008 + 0.008 * (number % 3)) for number in range(91)]
    ran, reports = recorded(asked, blocked_s=0.002)
    found = payments(ran, {"w": RATE}, reports)
    most_s = found.charged["read"][0] * MEDIAN_S
    assert most_s == pytest.approx(0.02)
    charged_s = sum(min(each, most_s) for each in net_s(ran, found)[1:])
    told = [each.counts["charged_s/read/v"] for each in reports]
    assert charged_s == pytest.approx(told[-1] - told[0])


def test_tasks_are_charged_apart_and_only_the_last_life_of_a_worker_counts() -> None:
    ran = [
        RecordedRun(worker, task, at, at + 0.02, MEDIAN_S)
        for worker, task in (("v", "locate"), ("w", "read"))
        for at in (1.0, 2.0, 3.0)
    ]
    reports = [a_report(at, 0.015 * at, "locate", "v") for at in (0.5, 1.02, 3.02, 4.0)]
    reports += [structs.replace(a_report(2.01, 0.0), incarnation=2.0), a_report(1.5, 9.0)]
    reports.append(structs.replace(a_report(3.02, 0.022), incarnation=2.0))
    found = payments(ran, {"v": RATE, "w": RATE}, reports)
    assert found.charged == {
        "locate": {0: pytest.approx(1.5)}, "read": {0: pytest.approx(1.1)}
    }  # fmt: skip


@pytest.mark.parametrize("other", [1, 3])
def test_batches_are_charged_by_how_many_devices_are_busy(other: int) -> None:
    """Only the first batch of a burst finds cold caches. A charge for all batches of the task makes
    that of a worker which often runs the first one too low."""
    ran, reports, charged_s = [], [], 0.0
    for burst in range(120):
        for number in range(1 + burst % 3):
            level, used_s = (other, 0.014) if number else (0, 0.025)
            began_s = burst + number / 4
            ended_s = began_s + used_s + 0.01  # blocked for 10 ms
            ran.append(RecordedRun("w", "read", began_s, ended_s, MEDIAN_S, level))
            charged_s += used_s
        reports.append(a_report(burst + 0.9, charged_s))
    found = payments(ran, {"w": RATE}, reports).charged["read"]
    assert found == {0: pytest.approx(2.5), other: pytest.approx(1.4)}


def test_a_level_of_few_batches_is_charged_as_the_nearest_one() -> None:
    ran = [
        RecordedRun("w", "read", float(at), at + 0.02, MEDIAN_S, 2 if at == 50 else 0)
        for at in range(200)
    ]
    reports = [a_report(at + 0.5, 0.015 * at) for at in range(200)]
    assert payments(ran, {"w": RATE}, reports).charged == {"read": {0: pytest.approx(1.5)}}


def test_the_wait_of_a_batch_does_not_count_as_its_run_where_charges_vary() -> None:
    """An account by the mean charge loses its way in a long busy time. A tenth of these batches ran
    for 5.9 to 7.2 medians then, in truth for 1.6 at most."""
    asked = [(0.3 if n % 40 == 0 else 0.0, (0.01, 0.01, 0.016)[n // 8 % 3]) for n in range(400)]
    ran, reports = recorded(asked)
    found = payments(ran, {"w": RATE}, reports)
    free = [s / MEDIAN_S for s, owed_nothing in zip(net_s(ran, found), found.free, strict=True)
            if owed_nothing]  # fmt: skip
    assert len(free) > 8
    assert max(free) < 1.61
    assert max(net_s(ran, found)) < 2.0 * MEDIAN_S


@given(
    st.lists(
        st.tuples(st.floats(0.0, 0.5), st.floats(MEDIAN_S, 1.4 * MEDIAN_S)), min_size=1, max_size=40
    )
)
def test_a_batch_that_surely_waited_for_nothing_did_not(asked: list[tuple[float, float]]) -> None:
    ran, reports = recorded(asked)
    found = payments(ran, {"w": RATE}, reports)
    for each, (_, used_s), free, wait_s in zip(ran, asked, found.free, found.waits_s, strict=True):
        assert 0.0 <= wait_s <= each.finished_s - each.started_s
        if free:
            assert wait_s == 0.0
            assert each.finished_s - each.started_s == pytest.approx(used_s)

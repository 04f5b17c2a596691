"""benchmarks/papers/ramsis_queues.py: bare queues with results computed by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.ramsis_baselines import Fixed, held
from benchmarks.papers.ramsis_queues import (
    Seen,
    always,
    as_ingress,
    by_recent_load,
    capped,
    central,
    decided,
    in_runs,
    round_robin,
    seconds_of,
)
from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import Table

ONE = CandidateModel("one", 0.5, (1.0, 1.5))
SLO_S = 2.0
SINGLES = decided([held(Fixed("one", 1), [ONE], SLO_S, 1.0)], [ONE], always)
PAIRS = decided([held(Fixed("one", 2), [ONE], SLO_S, 1.0)], [ONE], always)


def test_by_round_robin_a_worker_serves_its_own_queue() -> None:
    # The first worker gets 0, 0.2 and 0.4, which end at 1, 2 and 3; the last one is late.
    seen = round_robin([0.0, 0.1, 0.2, 0.3, 0.4], 2, SINGLES, SLO_S)
    assert seen == Seen(served=5, late=1, batches=5, right=2.0)


def test_free_worker_takes_the_next_query_of_the_central_queue() -> None:
    # Queries end at 1, 1.1, 2, 2.1 and 3.
    seen = central([0.0, 0.1, 0.2, 0.3, 0.4], 2, SINGLES, SLO_S)
    assert seen == Seen(served=5, late=1, batches=5, right=2.0)
    # 0 runs alone until 1, then 0.1 and 0.2 until 2.5; the first of these is late.
    assert central([0.0, 0.1, 0.6], 1, PAIRS, SLO_S) == Seen(3, 1, 2, 1.0)


def test_rescue_runs_instead_of_a_late_batch_and_drops_queries_it_cannot_save() -> None:
    times = [0.0, 0.1, 0.2, 0.3]
    assert round_robin(times, 1, SINGLES, SLO_S) == Seen(4, 2, 4, 1.0)
    # At 2 the slack is 0.2: the last two are dropped.
    alone = capped(ONE, 1)
    assert round_robin(times, 1, SINGLES, SLO_S, alone) == Seen(4, 2, 2, 1.0)
    assert central(times, 1, SINGLES, SLO_S, alone) == Seen(4, 2, 2, 1.0)
    # A faster model saves them.
    fast = capped(CandidateModel("fast", 0.1, (0.1, 0.15)), 2)
    assert central(times, 1, SINGLES, SLO_S, fast) == Seen(4, 0, 3, 1.2)


def test_a_trial_ends_once_enough_are_late() -> None:
    assert central([0.0, 0.1, 0.2, 0.3], 1, SINGLES, SLO_S, most_late=0).served == 3


def test_table_lookup_uses_queue_length_and_slack() -> None:
    quick = CandidateModel("quick", 0.1, (0.1, 0.2))
    table = Table(
        qps=1.0,
        models=("quick", "one"),
        levels_s=(0.0, 1.0, SLO_S),
        model=((0, 1, 1), (0, 0, 1), (0, 0, 0)),
        batch=((1, 1, 1), (2, 2, 1), (3, 3, 3)),
    )
    decide = decided([table], [quick, ONE], always)
    assert decide(1, 0.9, 0.0) == (1, 0.1, 0.1)
    assert decide(1, 1.0, 0.0) == (1, 1.0, 0.5)
    assert decide(2, 2.0, 0.0) == (1, 1.0, 0.5)
    assert decide(2, -1.0, 0.0) == (2, 0.2, 0.1)
    # A full queue is served as a whole, with the latency of the line through the profile.
    assert decide(5, 2.0, 0.0) == (5, pytest.approx(0.5), 0.1)


def test_the_line_goes_through_the_profile() -> None:
    assert [seconds_of(ONE, batch) for batch in (1, 2, 3, 4)] == pytest.approx([1, 1.5, 2, 2.5])


def test_table_in_force_follows_recent_arrivals() -> None:
    times = [0.1 * n for n in range(30)]  # 10 a second
    assert by_recent_load(times, [5.0, 10.0, 20.0], before=2)(0.3) == 2
    assert by_recent_load(times, [5.0, 10.0, 20.0], before=2)(2.05) == 1
    assert by_recent_load(times, [5.0, 10.0, 20.0], before=-1)(0.05) == 0
    assert by_recent_load(times, [5.0, 9.0], before=0)(2.05) == 1


@given(st.lists(st.floats(0, 5), max_size=30).map(sorted), st.integers(1, 4), st.booleans())
def test_every_query_ends_once(times: list[float], workers: int, rescued: bool) -> None:
    rescue = capped(ONE, 1) if rescued else None
    for discipline in (round_robin, central):
        seen = discipline(times, workers, PAIRS, SLO_S, rescue)
        assert seen.served == len(times)
        assert 0 <= seen.late <= seen.served
        assert seen.right == pytest.approx(0.5 * (seen.served - seen.late))


def test_worker_starts_a_run_when_it_is_complete_or_its_first_query_has_waited_enough() -> None:
    # 0 and 0.1 begin at 0.1, 0.15 and 0.18 with the other at 0.18; 3 waits in vain until 3.2.
    times = [0.0, 0.1, 0.15, 0.18, 3.0]
    assert in_runs(times, 2, PAIRS, SLO_S, None, lambda now: 2) == Seen(5, 0, 3, 2.5)
    # A tenth of the SLO of 1.65 is 0.165: the first pair is done at 1.6, in time.
    assert in_runs(times[:2], 2, PAIRS, 1.65, None, lambda now: 2) == Seen(2, 0, 1, 1.0)
    assert in_runs(times[:2], 2, PAIRS, 1.55, None, lambda now: 2) == Seen(2, 1, 1, 0.5)
    # With one worker the second pair waits for the first.
    assert in_runs(times[:4], 1, PAIRS, SLO_S, None, lambda now: 2) == Seen(4, 2, 2, 1.0)


def test_runs_of_one_are_round_robin() -> None:
    times = [0.0, 0.1, 0.2, 0.3, 0.4]
    runs = in_runs(times, 2, SINGLES, SLO_S, None, lambda now: 1)
    assert runs == round_robin(times, 2, SINGLES, SLO_S)


def test_runs_last_while_a_table_close_by_has_them() -> None:
    tables = [
        Table(qps=q, models=(), levels_s=(), model=(), batch=(), run=run)
        for q, run in ((100.0, 2), (104.0, 3), (120.0, 4))
    ]
    run_at = as_ingress(tables, lambda now: int(now))
    assert [run_at(now) for now in (0.0, 1.0, 2.0, 1.0, 0.0)] == [2, 2, 4, 4, 4]

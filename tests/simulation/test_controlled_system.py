"""The whole system under its controller, in virtual time, while workers die and policies change."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.checks.structure_check import check_structure
from control.controller.controller import Controller
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.serving.worker import Worker
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    QUERIES,
)
from schemas.pipeline import Pipeline, Policy
from schemas.records import Command, CommandResult, Query
from streams.simulated.delays import constant_delays
from streams.simulated.simulated_driver import Simulated
from tests.builders import a_pipeline
from tests.simulation.outputs import solving_in, the_answers, the_plans
from tests.toys import Toy, fanning, reading

WORKERS = ("w0", "w1", "w2", "w3")
SLO_S = 1.0
SOLVE_S = 0.05
QUERIES_S = 10.0  # duration of the arrivals
LAST_S = 14.0
RATE = 30

Fault = tuple[float, str, str]  # time, action, worker or argument


def the_pipeline() -> Pipeline:
    return a_pipeline(
        {"locate": ["read"], "read": []},
        slo_s=SLO_S,
        policies=(
            Policy(name="static", replicas={"locate/v": 1, "read/v": 3}),
            Policy(name="other", replicas={"locate/v": 2, "read/w": 2}),
        ),
    )


def simulated(pipeline: Pipeline, seed: int, faults: list[Fault]) -> Simulated:
    """Simulate initial workers, 30 queries a second for 10 s, and faults."""
    rng = np.random.default_rng([seed, 1])

    def make(node: str, variant: str) -> Toy:
        output = fanning(("read",), 4) if variant.startswith("locate") else reading
        # A worker that starts later loads from a cold disk.
        return Toy(rng, output, base_s=0.004, load_s=0.1 if system.now < 1.0 else 2.0)

    system = Simulated(
        pipeline,
        {
            "control": Controller(pipeline, None, len(WORKERS)),
            "ingress": Ingress("ingress", pipeline, range(4), incarnation=0.0),
            "egress": Egress("egress", pipeline, range(2), incarnation=0.0),
            **{name: a_worker(name, pipeline, 0.0) for name in WORKERS},
        },
        make,
        delays=constant_delays(0.002, 0.1),
        solve=solving_in(SOLVE_S),
    )
    for number in range(int(QUERIES_S * RATE)):
        at_s = 1.0 + number / RATE
        system.input(at_s, QUERIES, number % 4, Query(payload="scan", id=f"q{number}"))
    for number, fault in enumerate(sorted(faults)):
        system.at(fault[0], wrong(system, pipeline, number, fault))
    system.run(LAST_S)
    return system


def a_worker(name: str, pipeline: Pipeline, now: float) -> Worker:
    return Worker(name, pipeline, "emulated", incarnation=now)


def wrong(system: Simulated, pipeline: Pipeline, number: int, fault: Fault) -> Callable[[], None]:
    at_s, action, argument = fault
    if action == "kill":
        return lambda: system.kill(argument)
    if action == "start":
        return lambda: system.start(argument, a_worker(argument, pipeline, at_s))
    name = "policy" if action == "apply-policy" else "target"
    command = Command(id=f"c{number}", pipeline="p", action=action, arguments={name: argument})
    return lambda: system.input(at_s, COMMANDS, 0, command)


def test_a_dead_workers_queries_are_finished_by_the_others() -> None:
    system = simulated(the_pipeline(), 1, [(5.0, "kill", "w2")])
    lost = next(plan for plan in the_plans(system) if plan.reason.startswith("lost w2"))
    assert lost.issued_s == pytest.approx(5.75, abs=0.2)
    answers = the_answers(system)
    assert len(answers) == QUERIES_S * RATE
    # Late are only queries that were in the dead worker's slot until its death was detected.
    late = [answer for answer in answers if answer.late or answer.outcome == "dropped"]
    assert all(4.8 < answer.created_s < 6.2 for answer in late)


def test_a_worker_that_returns_gets_no_query_before_it_has_loaded() -> None:
    system = simulated(the_pipeline(), 1, [(3.0, "kill", "w2"), (5.0, "start", "w2")])
    answers = the_answers(system)
    assert not [a for a in answers if a.created_s > 4.2 and (a.late or a.outcome == "dropped")]
    served = [hop for a in answers for path in a.paths for hop in path if hop.worker == "w2"]
    assert [hop for hop in served if hop.started_s > 7.0]


def test_a_change_of_policy_is_smooth() -> None:
    system = simulated(the_pipeline(), 2, [(5.0, "apply-policy", "other")])
    answers = the_answers(system)
    assert Counter(answer.outcome for answer in answers).keys() <= {"answered", "failed"}
    assert not [answer for answer in answers if answer.late]
    variants = {hop.variant for a in answers for path in a.paths for hop in path}
    assert variants == {"v", "w"}


def test_a_drained_worker_leaves_no_query_behind() -> None:
    system = simulated(the_pipeline(), 3, [(4.0, "drain", "w1"), (7.0, "restore", "w1")])
    answers = the_answers(system)
    assert not [answer for answer in answers if answer.late or answer.outcome == "dropped"]


FAULTS = st.lists(
    st.one_of(
        st.tuples(
            st.floats(0.5, 11.0),
            st.sampled_from(["kill", "start", "drain", "restore"]),
            st.sampled_from(WORKERS),
        ),
        st.tuples(
            st.floats(0.5, 11.0),
            st.just("apply-policy"),
            st.sampled_from(["static", "other", "none"]),
        ),
    ),
    max_size=8,
)


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), faults=FAULTS)
def test_every_query_has_one_outcome_whatever_happens(seed: int, faults: list[Fault]) -> None:
    pipeline = the_pipeline()
    system = simulated(pipeline, seed, faults)
    answers = the_answers(system)
    assert sorted(a.id for a in answers) == sorted(f"q{n}" for n in range(int(QUERIES_S * RATE)))
    plans = the_plans(system)
    assert [plan.epoch for plan in plans] == list(range(1, len(plans) + 1))
    assert [check_structure(plan, pipeline) for plan in plans] == [()] * len(plans)
    results = [r for written in system.written(COMMAND_RESULTS).values() for r, _ in written]
    asked = [f"c{n}" for n, fault in enumerate(sorted(faults)) if fault[1] not in ("kill", "start")]
    assert sorted(r.id for r in results if isinstance(r, CommandResult)) == sorted(asked)

"""Reasons for plans: sentences, causes, and whether they required a solve."""

import pytest

from control.problem.plan_reasons import (
    FIRST,
    HANDOVER,
    INTERVAL,
    ROUTES,
    STAGED,
    STEPS,
    PlanReason,
    about_worker,
    after_failure,
    by_command,
    causes,
    plan_lost,
    sentence,
    solved_for,
    workers_lost,
)
from schemas.codec.older_releases import plan_causes
from schemas.enumerations import PlanCause
from tests.builders import a_plan

REASONS = [
    FIRST,
    INTERVAL,
    STAGED,
    ROUTES,
    HANDOVER,
    workers_lost(("a", "b")),
    plan_lost(7),
    by_command("drain", "c-1"),
    after_failure("no variant fits"),
    about_worker("w-1", PlanCause.WORKER_NEW),
    about_worker("w-1", PlanCause.WORKER_RESTARTED),
    about_worker("w-1", PlanCause.WORKER_LEAVING),
    about_worker("w-1", PlanCause.WORKER_DRAINED),
    about_worker("w-1", PlanCause.WORKER_SERVES, "read"),
    about_worker("w-1", PlanCause.WORKER_UNLOADED, "read"),
]


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.cause)
def test_a_plan_of_this_release_that_is_written_as_release_5_is_understood(
    reason: PlanReason,
) -> None:
    # HEADRACE_WRITE_RELEASE=5 omits causes: they must be inferred from the sentence alone.
    assert plan_causes(reason.text) == [reason.cause]


def test_sentences_and_causes_come_in_order_each_once() -> None:
    reasons = [workers_lost(("a",)), about_worker("b", PlanCause.WORKER_SERVES, "read"), INTERVAL]
    reasons += [about_worker("c", PlanCause.WORKER_SERVES, "read"), INTERVAL]
    assert sentence(reasons) == (
        "lost a; worker b serves read; periodic replan; worker c serves read"
    )
    assert causes(reasons) == (
        PlanCause.WORKER_LOST,
        PlanCause.WORKER_SERVES,
        PlanCause.INTERVAL,
    )


def test_a_command_whose_id_reads_like_a_step_is_solved_for() -> None:
    reason = by_command("drain", "worker a is drained")
    plan = a_plan(reason=sentence([reason]), causes=causes([reason]))
    assert solved_for(plan)


@pytest.mark.parametrize("cause", list(PlanCause))
def test_a_step_is_not_solved_for_even_where_a_worker_was_lost(cause: PlanCause) -> None:
    assert solved_for(a_plan(causes=(cause,))) == (cause not in STEPS)
    assert not solved_for(a_plan(causes=(cause, PlanCause.HANDOVER)))

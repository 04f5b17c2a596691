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
    made_for,
    plan_lost,
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
    plan = made_for(a_plan(command="of an earlier plan"), reasons)
    assert plan.reason == "lost a; worker b serves read; periodic replan; worker c serves read"
    assert plan.causes == (
        PlanCause.WORKER_LOST,
        PlanCause.WORKER_SERVES,
        PlanCause.INTERVAL,
    )
    assert plan.command == ""


def test_a_plan_names_the_first_of_its_commands() -> None:
    reasons = [INTERVAL, by_command("drain", "new"), by_command("replan", "old")]
    assert made_for(a_plan(), reasons).command == "new"


def test_a_command_whose_id_reads_like_a_step_is_solved_for() -> None:
    assert solved_for(made_for(a_plan(), [by_command("drain", "worker a is drained")]))


@pytest.mark.parametrize("cause", list(PlanCause))
def test_a_step_is_not_solved_for_even_where_a_worker_was_lost(cause: PlanCause) -> None:
    assert solved_for(a_plan(causes=(cause,))) == (cause not in STEPS)
    assert not solved_for(a_plan(causes=(cause, PlanCause.HANDOVER)))

"""What the policies that plan sessions share: their options, and the refusal to plan a pipeline."""

from typing import NoReturn

from control.policies.option_fields import Option, OptionType
from control.problem.problem import PlanError, Problem

DEADLINE = Option(
    name="deadline",
    type=OptionType.SECONDS,
    default=5.0,
    meaning="a search ends after so long",
)
SPEND = Option(
    name="spend",
    type=OptionType.AMOUNT,
    default=0.5,
    meaning="$ that the profiling of a search may cost; 0: no limit",
)
CONFIDENCE = Option(
    name="confidence",
    type=OptionType.SHARE,
    default=0.99,
    meaning="confidence at which profiling stops with a verdict",
)
SAMPLES = Option(
    name="samples",
    type=OptionType.WHOLE_BY_NAME,
    default={"least": 50, "most": 350},
    meaning="samples of a profile: least before the first look, most at all",
)
HISTORY = Option(
    name="history",
    type=OptionType.COUNT,
    default=12,
    meaning="past searches that form the committee",
)
MEMBERS = Option(
    name="members",
    type=OptionType.CHOICE,
    choices=("better", "top-k"),
    default="better",
    meaning="who votes: those that predict better than the search itself, or the best ones",
)
TEST = Option(
    name="test",
    type=OptionType.CHOICE,
    choices=("one-sided", "two-sided"),
    default="one-sided",
    meaning="the sequential test of a profile",
)
OBJECTIVE = Option(
    name="objective",
    type=OptionType.CHOICE,
    choices=("goodput", "cost"),
    default="goodput",
    meaning="what the schedule of many sessions is for",
)
SESSIONS: tuple[Option, ...] = (
    DEADLINE, SPEND, CONFIDENCE, SAMPLES, HISTORY, MEMBERS, TEST, OBJECTIVE,
)  # fmt: skip


def allocate(problem: Problem) -> NoReturn:
    """Raise ``PlanError``: these policies plan sessions one by one."""
    raise PlanError(
        f"policy {problem.policy.name!r} plans sessions (`headrace search`, `headrace schedule`) "
        "and cannot run the whole pipeline; name another policy, such as static"
    )

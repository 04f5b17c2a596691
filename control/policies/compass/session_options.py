"""Options of the policies that plan sessions, and the workers of their tiers."""

from collections import Counter

from control.policies.option_fields import Option, OptionType
from control.problem.problem import Allocation, PlanError, Problem, Replicas
from control.problem.seats import task_of
from control.problem.session_space import AGEING_S
from schemas.pipeline import Task

DEADLINE = Option(
    name="deadline",
    type=OptionType.SECONDS,
    default=5.0,
    meaning="time after which a search ends",
)
SPEND = Option(
    name="spend",
    type=OptionType.AMOUNT,
    default=0.5,
    meaning="maximum cost in $ of the profiling of a search; 0: no limit",
)
CONFIDENCE = Option(
    name="confidence",
    type=OptionType.CONFIDENCE,
    default=0.99,
    meaning="confidence at which profiling stops with a verdict",
)
SAMPLES = Option(
    name="samples",
    type=OptionType.WHOLE_BY_NAME,
    default={"least": 50, "most": 350},
    meaning="samples of a profile: least before the first test, most in total",
)
HISTORY = Option(
    name="history",
    type=OptionType.COUNT,
    default=12,
    meaning="number of past searches in the committee",
)
MEMBERS = Option(
    name="members",
    type=OptionType.CHOICE,
    choices=("better", "top-k"),
    default="better",
    meaning="searches that vote: those that predict better than the search itself, or the best",
)
TEST = Option(
    name="test",
    type=OptionType.CHOICE,
    choices=("one-sided", "two-sided"),
    default="one-sided",
    meaning="sequential test of a profile",
)
SURROGATE = Option(
    name="surrogate",
    type=OptionType.CHOICE,
    choices=("composed", "plans"),
    default="composed",
    meaning="latency prediction of a search: composed of stages, or for whole plans (Compass)",
)
OBJECTIVE = Option(
    name="objective",
    type=OptionType.CHOICE,
    choices=("goodput", "cost"),
    default="goodput",
    meaning="objective of the schedule: maximise goodput, or minimise cost",
)
AGEING = Option(
    name="ageing",
    type=OptionType.SECONDS,
    default=AGEING_S,
    meaning="waiting time in which the weight of a session doubles",
)
IDLE = Option(
    name="idle",
    type=OptionType.SECONDS_OR_AUTO,
    meaning="time without queries after which a serving session is closed; auto: never",
)
SESSIONS: tuple[Option, ...] = (
    DEADLINE, SPEND, CONFIDENCE, SAMPLES, HISTORY, MEMBERS, TEST, SURROGATE, OBJECTIVE, AGEING,
    IDLE,
)  # fmt: skip


def allocate(problem: Problem) -> Allocation:
    """Return a worker for every task on every device of a tier that may run it, up to its slots.

    The sessions determine the settings that workers hold (control/sessions). Raises ``PlanError``
    if the cluster has no tiers with devices.
    """
    if not any(map(task_of, problem.devices)):
        raise PlanError(
            f"policy {problem.policy.name!r} serves sessions on the devices of cluster.tiers, and "
            "none is there; give the tiers a count and leave cluster.devices out, or name another "
            "policy, such as static"
        )
    there = Counter(problem.devices)
    tasks = problem.pipeline.tasks
    replicas = tuple(found for task in tasks if (found := _seats(problem, task, there)).count)
    binding = next(filter(None, (_short(task, there) for task in tasks)), "")
    return Allocation(replicas, feasible=not binding, binding=binding)


def _short(task: Task, there: Counter[str]) -> str:
    """Return why a task has too few workers, or ""."""
    workers = sum(there[device] for device in there if task_of(device) == task.name)
    if not workers:
        return f"no device of a tier runs task {task.name!r}"
    if workers > task.slots and task.slots != task.most:  # else the file bounds its replicas
        return (
            f"task {task.name!r} has {task.slots} slots, so that {workers - task.slots} of its "
            f"{workers} workers serve no session; raise tasks.{task.name}.slots"
        )
    return ""


def _seats(problem: Problem, task: Task, there: Counter[str]) -> Replicas:
    variant = task.variants[0]  # a name only: sessions decide what is loaded
    devices = tuple(sorted(device for device in there if task_of(device) == task.name))
    return Replicas(
        task=task.name,
        variant=variant.name,
        batch=problem.batch(variant),
        count=min(sum(there[device] for device in devices), task.slots),
        on=devices,
    )

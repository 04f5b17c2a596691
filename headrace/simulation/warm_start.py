"""The control app until planning begins, in a simulation that starts under a plan already in force.

It says that plan, and keeps what it hears of the input topic for the one that comes after it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec.structs import replace

from control.controller.controller import TICK_S
from control.problem.plan_reasons import solved_for
from schemas.effects import PLANS, Counted, Effect, Event, Node, Send, Wake, Woke
from schemas.pipeline import Pipeline
from schemas.records import Plan


@dataclass(frozen=True, slots=True)
class Start:
    """A plan in force, and when the control app plans anew, from the start of the arrivals.

    Demand is counted by whole seconds of the clock; the arrivals begin ``phase_s`` into one.
    """

    plan: Plan
    plans_from_s: float
    phase_s: float = 0.0


def start_of(
    plans: Iterable[Plan], began_s: float, until_s: float, interval_s: float
) -> Start | None:
    """The newest of these plans ``until_s`` after the arrivals began, None where there was none.

    A solve comes every ``interval_s`` after the last one that made a plan, whether that changes
    it or not. Planning begins with the last one by then; where there had been arrivals for less
    than an interval, with the next, as what has only just begun is planned for otherwise.
    """
    early = [plan for plan in plans if plan.issued_s < began_s + until_s]
    if not early:
        return None
    early.sort(key=lambda plan: plan.epoch)
    solved = [plan for plan in early if solved_for(plan)] or early
    from_s = until_s - (began_s + until_s - solved[-1].issued_s) % interval_s
    from_s = from_s if from_s >= interval_s else from_s + interval_s
    return Start(early[-1], from_s, began_s % 1)


def filed(plan: Plan, pipeline: Pipeline) -> Plan:
    """The plan as if the policy that it goes by stood in the pipeline file.

    Live it may have come by a command. To a control app that reads the file for the first time
    the plan would be another author's, and it would not keep to it.
    """
    named = replace(plan.settings, filed_policy=pipeline.policy, filed_slo_s=pipeline.slo_s)
    return replace(plan, settings=named)


class GivenPlan:
    """The node. Its plan goes out once; ticks let its host have the input topic counted."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._said = False
        self._heard: list[tuple[Event, float]] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Counted:
            self._heard.append((event, now))
        if type(event) is not Woke:
            return []
        said, self._said = self._said, True
        plan = [] if said else [Send(PLANS, replace(self._plan, issued_s=now), 0)]
        return [*plan, Wake(now + TICK_S)]

    def hand_over(self, successor: Node) -> None:
        """Let the one that is to plan know what came so far, as if it had been there."""
        for event, at_s in self._heard:
            successor.handle(event, at_s)

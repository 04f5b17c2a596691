"""Start a simulation under a plan already in force.

A ``GivenPlan`` node stands in for the control app until planning begins: it sends the plan, and
keeps the counts of the input topic for its successor.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from control.controller.controller import TICK_S
from control.problem.plan_reasons import solved_for
from headrace.simulation.run_input import Start
from schemas.effects import PLANS, Counted, Effect, Event, Node, Send, Wake, Woke
from schemas.pipeline import Pipeline
from schemas.records import Plan


def start_of(
    plans: Iterable[Plan], began_s: float, until_s: float, interval_s: float
) -> Start | None:
    """Return the newest plan issued within ``until_s`` of the arrivals' start, None without one.

    A solve follows every ``interval_s`` after the last solve that made a plan, whether or not it
    changes the plan. Planning begins with the last solve before ``until_s``, or with the next if
    less than an interval of arrivals precedes it: the demand of a new load is estimated
    differently.
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
    """Return the plan as if its policy and SLO were set in the pipeline file.

    Live, a command may have set them. A control app that starts with this file would otherwise
    treat the settings as foreign and not keep them.
    """
    named = replace(plan.settings, filed_policy=pipeline.policy, filed_slo_s=pipeline.slo_s)
    return replace(plan, settings=named)


class GivenPlan:
    """A control node that sends its plan once; its ticks let the host count the input topic."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._said = False
        self._events: list[tuple[Event, float]] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        if type(event) is Counted:
            self._events.append((event, now))
        if type(event) is not Woke:
            return []
        said, self._said = self._said, True
        plan = [] if said else [Send(PLANS, replace(self._plan, issued_s=now), 0)]
        return [*plan, Wake(now + TICK_S)]

    def hand_over(self, successor: Node) -> None:
        """Replay the counts received so far to ``successor``, at their original times."""
        for event, at_s in self._events:
            successor.handle(event, at_s)

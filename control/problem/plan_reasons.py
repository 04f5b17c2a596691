"""Reasons for plans: a cause for programs, with a sentence for readers.

A solve has causes such as a new worker or a jump of demand. ``STEPS`` are the causes of plans
without a solve: the next step towards the allocation of an earlier solve, a quick plan while a
solve is in flight, or routes that follow demand.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from schemas.enumerations import PlanCause
from schemas.records import Plan

STEPS = frozenset(
    (
        PlanCause.WORKER_SERVES,
        PlanCause.WORKER_DRAINED,
        PlanCause.STAGED,
        PlanCause.ROUTES,
        PlanCause.HANDOVER,
        PlanCause.SESSIONS,
        PlanCause.MIX,
    )
)


class PlanReason(NamedTuple):
    """A cause and its sentence; ``command`` is the id of the command that is the cause."""

    cause: PlanCause
    text: str
    command: str = ""


FIRST = PlanReason(PlanCause.FIRST, "first plan")
INTERVAL = PlanReason(PlanCause.INTERVAL, "periodic replan")
STAGED = PlanReason(PlanCause.STAGED, "next step of the rollout")
ROUTES = PlanReason(PlanCause.ROUTES, "routes for the current demand")
ADMISSION = PlanReason(PlanCause.ROUTES, "admission by the observed capacity")
PACE = PlanReason(PlanCause.ROUTES, "a worker became slower than others of its kind, or recovered")
HANDOVER = PlanReason(PlanCause.HANDOVER, "slots handed over")
AT_ONCE = PlanReason(PlanCause.STAGED, "quick plan until the exact solve ends")
SESSIONS = PlanReason(PlanCause.SESSIONS, "session plans changed")

_WORKER = {
    PlanCause.WORKER_NEW: "is new",
    PlanCause.WORKER_RESTARTED: "has restarted",
    PlanCause.WORKER_LEAVING: "is leaving",
    PlanCause.WORKER_DRAINED: "is drained",
    PlanCause.WORKER_SERVES: "serves",
    PlanCause.WORKER_UNLOADED: "no longer serves",
}


def about_worker(name: str, cause: PlanCause, task: str = "") -> PlanReason:
    """Return the reason for an event of one worker, at ``task`` if the cause concerns one."""
    return PlanReason(cause, " ".join(filter(None, ("worker", name, _WORKER[cause], task))))


def measured_anew(path: str, accuracy: float | None) -> PlanReason:
    """Return the reason for a path whose measured accuracy (0 to 1) differs from the planned one;
    None: the profile's accuracy applies again."""
    text = (
        "is back within its profile"
        if accuracy is None
        else f"was measured as {100 * accuracy:.1f} %"
    )
    return PlanReason(PlanCause.ACCURACY, f"the accuracy of {path} {text}")


def workers_lost(workers: Iterable[str]) -> PlanReason:
    """Return the reason for workers that have stopped reporting."""
    return PlanReason(PlanCause.WORKER_LOST, f"lost {', '.join(workers)}")


def rented(mix: Mapping[str, int]) -> PlanReason:
    """Return the reason for a change of the rented devices, by type."""
    text = ", ".join(f"{count} {name}" for name, count in mix.items() if count) or "none"
    return PlanReason(PlanCause.MIX, f"devices to rent: {text}")


def plan_lost(epoch: int) -> PlanReason:
    """Return the reason for a plan in force that the plans topic no longer holds."""
    return PlanReason(PlanCause.PLAN_LOST, f"the plans topic has lost plan {epoch}")


def plan_missed(node: str, epoch: int) -> PlanReason:
    """Return the reason for a plan that supersedes one that a node has not received."""
    return PlanReason(PlanCause.PLAN_LOST, f"plan {epoch} has not reached {node}")


def older_release(node: str, release: int) -> PlanReason:
    """Return the reason for a node that reads only an earlier schema release."""
    return PlanReason(PlanCause.OTHER, f"{node} reads schema release {release} at most")


def by_command(action: str, command_id: str) -> PlanReason:
    """Return the reason for a solve that a command requested."""
    return PlanReason(PlanCause.COMMAND, f"command {action} ({command_id})", command_id)


def after_failure(trouble: str) -> PlanReason:
    """Return the reason that carries the failure of the previous solve."""
    return PlanReason(PlanCause.EARLIER_FAILURE, f"the previous solve failed: {trouble}")


def made_for(plan: Plan, reasons: Sequence[PlanReason]) -> Plan:
    """Return the plan with these reasons: the sentences and causes, each once, in order, and the
    first command."""
    return replace(
        plan,
        reason="; ".join(dict.fromkeys(each.text for each in reasons)),
        causes=tuple(dict.fromkeys(each.cause for each in reasons)),
        command=next((each.command for each in reasons if each.command), ""),
    )


def solved_for(plan: Plan) -> bool:
    """Return whether a solve led to the plan; otherwise it is a step or new routes."""
    return STEPS.isdisjoint(plan.causes)

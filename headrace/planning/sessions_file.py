"""Sessions in a YAML file, and the schedule of their plans on the tiers of a pipeline file.

    cam: {slo: 200ms, accuracy: 0.9, cost: 0.1, weight: 2, count: 20}

What a session leaves out is the pipeline file's; ``count`` makes several, named cam-1 to cam-20.
Their plans are searched over a recording, once for equal objectives.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from control.controller.session_schedules import demanded
from control.controller.session_searches import choice, nothing_complies
from control.policies.compass.schedule.instance import Candidate, Instance, Tier
from control.policies.compass.schedule.scheduling import Schedule
from control.policies.compass.search.search_step import cheapest_first
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.errors import PipelineError
from headrace.planning.instance_file import ANY
from headrace.planning.recorded_truth import RecordedTruth
from headrace.planning.session_search import Asked, RecordedProfiles, searched
from schemas.durations import duration
from schemas.records import SessionChoice

Objectives = tuple[float | None, float | None, float | None]  # seconds, accuracy, $ an hour


class _Session(msgspec.Struct, forbid_unknown_fields=True):
    slo: str | None = None
    accuracy: float | None = None
    cost: float | None = None
    weight: float | None = None
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A session of the file; None: the pipeline file's objective."""

    id: str
    objectives: Objectives
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """Listed sessions with the plans that meet their objectives, or why there are none."""

    sessions: tuple[Listed, ...]
    plans: Mapping[Objectives, tuple[SessionChoice, ...]]
    reasons: Mapping[Objectives, str]
    instance: Instance


def read_sessions(path: Path, usual: SessionSpace) -> tuple[Listed, ...]:
    """Read a sessions file; raise ``PipelineError`` naming the fault."""
    try:
        read = msgspec.yaml.decode(path.read_bytes(), type=dict[str, _Session])
    except OSError as error:
        raise PipelineError(f"the sessions {path} cannot be read ({error.strerror})") from error
    except msgspec.DecodeError as error:
        raise PipelineError(
            f"{path} lists no sessions: {error}; write such as cam: {{slo: 200ms, accuracy: 0.9}}"
        ) from error
    found = [each for name, given in read.items() for each in _listed(path, name, given, usual)]
    if not found:
        raise PipelineError(f"{path} lists no session; write such as cam: {{slo: 200ms}}")
    return tuple(found)


def _listed(path: Path, name: str, given: _Session, usual: SessionSpace) -> list[Listed]:
    if given.count < 1:
        raise PipelineError(
            f"{path}: session {name!r} has the count {given.count}; write 1 or more"
        )
    try:
        slo_s = None if given.slo is None else duration(given.slo)
    except ValueError as error:
        raise PipelineError(f"{path}: {str(error).replace('{}', f'slo of {name!r}', 1)}") from error
    names = [name] if given.count == 1 else [f"{name}-{n}" for n in range(1, given.count + 1)]
    weight = usual.weight if given.weight is None else given.weight
    wanted = (slo_s, given.accuracy, given.cost)
    return [Listed(id=each, objectives=wanted, weight=weight) for each in names]


def planned(
    file: PipelineFile, sessions: tuple[Listed, ...], truth: RecordedTruth, gpus: str
) -> Planned:
    """Search the plans of sessions over a recording; raises ``PlanError``.

    ``gpus`` "any" lifts the limit of every shared tier.
    """
    space = search_space(file)
    plans: dict[Objectives, tuple[SessionChoice, ...]] = {}
    reasons: dict[Objectives, str] = {}
    for wanted in dict.fromkeys(each.objectives for each in sessions):
        latency_s, accuracy, usd = wanted
        asked = Asked(latency_s=latency_s, accuracy=accuracy, usd_per_h=usd)
        found = searched(file, RecordedProfiles(space.space, truth), asked)
        plans[wanted] = tuple(choice(space, p) for p in cheapest_first(found.search.plans))
        if not plans[wanted]:
            reasons[wanted] = nothing_complies(found.slo, found.search.nearest, found.stopped)
    instance = Instance(
        tiers={name: _tier(space, name, len(sessions), gpus) for name in space.tiers},
        sessions=tuple(
            Candidate(
                each.id,
                each.weight,
                tuple(demanded(space, plan) for plan in plans[each.objectives]),
            )
            for each in sessions
        ),
    )
    return Planned(sessions=sessions, plans=plans, reasons=reasons, instance=instance)


def _tier(space: SessionSpace, name: str, sessions: int, gpus: str) -> Tier:
    tier = space.tiers[name]
    if tier.own:
        return Tier(sessions, 0.0)  # every session brings its own
    return Tier(None if gpus == ANY else space.counts.get(name, 0), tier.price)


def as_json(planned: Planned, made: Schedule) -> dict[str, Any]:
    """Return what ``headrace schedule FILE --json`` prints beside the schedule of an instance."""
    chosen = list(zip(planned.sessions, made.plans, strict=True))
    return {
        "assignments": [
            {"session": each.id, "plan": at, **_assigned(planned.plans[each.objectives][at])}
            for each, at in chosen
            if at is not None
        ],
        "refused": [
            {"session": each.id, "why": refusal(planned, each)} for each, at in chosen if at is None
        ],
    }


def refusal(planned: Planned, session: Listed) -> str:
    """Return why a session is not served."""
    return planned.reasons.get(session.objectives, "no devices are left for any of its plans")


def _assigned(plan: SessionChoice) -> dict[str, Any]:
    return {
        "latency_ms": plan.latency_s * 1e3,
        "accuracy": plan.accuracy,
        "usd_per_h": plan.usd_per_h,
        "items": [
            {
                "task": task,
                "setting": setting,
                "tier": plan.tiers[task],
                "share": plan.quarters.get(task, 0) / QUARTERS,
            }
            for task, setting in plan.settings.items()
        ],
    }


def as_text(planned: Planned, made: Schedule) -> str:
    """Return the plan of every session as text, a line each."""
    lines = []
    for each, at in zip(planned.sessions, made.plans, strict=True):
        if at is None:
            lines.append(f"  {each.id}: not served: {refusal(planned, each)}")
            continue
        plan = planned.plans[each.objectives][at]
        where = ", ".join(f"{s} on {plan.tiers[task]}" for task, s in plan.settings.items())
        accuracy = 100 * (plan.accuracy or 0.0)
        lines.append(
            f"  {each.id}: {plan.latency_s * 1e3:.1f} ms, {accuracy:.1f} %, "
            f"{plan.usd_per_h:.3f} $/h: {where}"
        )
    return "\n".join(lines)

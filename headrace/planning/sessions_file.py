"""Sessions in a YAML file, and the schedule of their plans on the tiers of a pipeline file.

    cam: {slo: 200ms, accuracy: 0.9, cost: 0.1, weight: 2, count: 20,
          opens: 10s, every: 5s, lasts: 60s, qps: 5}

Values that a session omits are the pipeline file's; ``count`` makes several, named cam-1 to cam-20.
A simulation (headrace/simulation/sessions/session_run.py) opens the first one after ``opens`` and
the others at intervals of ``every``; a session ends after ``lasts`` and sends ``qps`` queries/s.
Their plans are searched over a recording, once for equal objectives.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from control.controller.session_schedules import demanded
from control.controller.session_searches import choice, nothing_complies
from control.policies.compass.packing import packed_items
from control.policies.compass.schedule.instance import Candidate, Instance, Tier
from control.policies.compass.schedule.scheduling import Schedule
from control.policies.compass.search.search_step import cheapest_first
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.config.yaml_source import parse_source
from headrace.errors import PipelineError
from headrace.planning.instance_file import ANY
from headrace.planning.recorded_truth import RecordedTruth
from headrace.planning.session_search import Asked, RecordedProfiles, searched
from schemas.durations import duration
from schemas.records import SessionChoice

Objectives = tuple[float | None, float | None, float | None]  # seconds, accuracy, $ an hour


# The largest value of a number of a session, and what is allowed in words.
RANGES = {
    "accuracy": (1.0, "a number from 0 to 1"),
    "cost": (float("inf"), "$ an hour, 0 or more"),
    "weight": (sys.float_info.max, "0 or more"),
    "qps": (sys.float_info.max, "0 or more"),
}


class _Session(msgspec.Struct, forbid_unknown_fields=True):
    slo: str | None = None
    accuracy: float | None = None
    cost: float | None = None
    weight: float | None = None
    count: int = 1
    opens: str = "0s"
    every: str = "0s"
    lasts: str | None = None
    qps: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A session of the file. An objective of None is the pipeline file's; a life of None has no
    end."""

    id: str
    objectives: Objectives
    weight: float
    opens_s: float = 0.0
    lasts_s: float | None = None
    qps: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSessions:
    """Listed sessions with the plans that meet their objectives, or why there are none.

    ``space`` has the tiers, of some of which every session brings its own device."""

    sessions: tuple[Listed, ...]
    plans: Mapping[Objectives, tuple[SessionChoice, ...]]
    reasons: Mapping[Objectives, str]
    instance: Instance
    space: SessionSpace


def read_sessions(path: Path, usual: SessionSpace) -> tuple[Listed, ...]:
    """Read a sessions file; raise ``PipelineError`` naming the fault."""
    try:
        content = path.read_bytes()
        read = msgspec.yaml.decode(content, type=dict[str, _Session])
    except OSError as error:
        raise PipelineError(f"the sessions {path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise PipelineError(
            f"{path} lists no sessions: {error}; write such as cam: {{slo: 200ms, accuracy: 0.9}}"
        ) from error
    parse_source(content.decode("utf-8"), path)  # refuses a name that is there twice
    found = [each for name, given in read.items() for each in _listed(path, name, given, usual)]
    if not found:
        raise PipelineError(f"{path} lists no session; write such as cam: {{slo: 200ms}}")
    for name, number in Counter(each.id for each in found).items():
        if number > 1:
            raise PipelineError(f"{path}: {number} sessions are called {name!r}; rename them")
    return tuple(found)


def _listed(path: Path, name: str, given: _Session, usual: SessionSpace) -> list[Listed]:
    if given.count < 1:
        raise PipelineError(
            f"{path}: session {name!r} has the count {given.count}; write 1 or more"
        )
    for key, (most, wanted) in RANGES.items():
        value = getattr(given, key)
        if value is not None and not 0 <= value <= most:
            raise PipelineError(f"{path}: session {name!r} has the {key} {value:g}; write {wanted}")
    texts = {n: getattr(given, n) for n in ("slo", "opens", "every", "lasts")}
    times = {n: _seconds(path, name, n, text) for n, text in texts.items() if text is not None}
    names = [name] if given.count == 1 else [f"{name}-{n}" for n in range(1, given.count + 1)]
    return [
        Listed(
            id=each,
            objectives=(times.get("slo"), given.accuracy, given.cost),
            weight=usual.weight if given.weight is None else given.weight,
            opens_s=times["opens"] + number * times["every"],
            lasts_s=times.get("lasts"),
            qps=given.qps,
        )
        for number, each in enumerate(names)
    ]


def _seconds(path: Path, session: str, what: str, text: str) -> float:
    try:
        return duration(text)
    except ValueError as error:
        named = str(error).replace("{}", f"{what} of {session!r}", 1)
        raise PipelineError(f"{path}: {named}") from error


def planned_sessions(
    file: PipelineFile, sessions: tuple[Listed, ...], truth: RecordedTruth, gpus: str
) -> PlannedSessions:
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
    return PlannedSessions(
        sessions=sessions, plans=plans, reasons=reasons, instance=instance, space=space
    )


def _tier(space: SessionSpace, name: str, sessions: int, gpus: str) -> Tier:
    tier = space.tiers[name]
    if tier.own:
        return Tier(sessions, 0.0)  # every session brings its own
    return Tier(None if gpus == ANY else space.counts.get(name, 0), tier.price)


def as_json(planned: PlannedSessions, made: Schedule) -> dict[str, Any]:
    """Return what ``headrace schedule FILE --json`` prints beside the schedule of an instance."""
    chosen = list(zip(planned.sessions, made.plans, strict=True))
    assigned = {
        each.id: planned.plans[each.objectives][at] for each, at in chosen if at is not None
    }
    devices = devices_of(assigned, planned.space)
    return {
        "assignments": [
            {"session": each.id, "plan": at, **_assigned(each.id, assigned[each.id], devices)}
            for each, at in chosen
            if at is not None
        ],
        "refused": [
            {"session": each.id, "why": unserved_reason(planned, each)}
            for each, at in chosen
            if at is None
        ],
    }


def unserved_reason(planned: PlannedSessions, session: Listed) -> str:
    """Return why a session is not served."""
    return planned.reasons.get(session.objectives, "no devices are left for any of its plans")


def devices_of(
    assigned: Mapping[str, SessionChoice], space: SessionSpace
) -> dict[tuple[str, str], str]:
    """Return the device of every session and task, as in depot-0: the fewest of each shared tier
    that hold stages of one pool each, and one for each session of a tier that is its own. A task
    that takes no part of a shared device has none."""
    items: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
    found: dict[tuple[str, str], str] = {}
    owners: dict[str, list[str]] = {}
    for session, plan in assigned.items():
        for task, tier in plan.tiers.items():
            quarters = plan.quarters.get(task, 0)
            if space.tiers[tier].own:
                mine = owners.setdefault(tier, [])
                if session not in mine[-1:]:
                    mine.append(session)
                found[session, task] = f"{tier}-{len(mine) - 1}"
            elif quarters:
                shared = tier, space.pool(task, plan.settings[task])
                items.setdefault(shared, []).append((session, task, quarters))
    used: Counter[str] = Counter()  # devices, by tier
    for (tier, _), wanted in items.items():
        placed = packed_items([quarters for _, _, quarters in wanted])
        for (session, task, _), number in zip(wanted, placed.gpu, strict=True):
            found[session, task] = f"{tier}-{used[tier] + number}"
        used[tier] += len(placed.free)
    return found


def _assigned(
    session: str, plan: SessionChoice, devices: Mapping[tuple[str, str], str]
) -> dict[str, Any]:
    return {
        "latency_ms": plan.latency_s * 1e3,
        "accuracy": plan.accuracy,
        "usd_per_h": plan.usd_per_h,
        "items": [
            {
                "task": task,
                "setting": setting,
                "tier": plan.tiers[task],
                "device": devices.get((session, task)),
                "share": plan.quarters.get(task, 0) / QUARTERS,
            }
            for task, setting in plan.settings.items()
        ],
    }


def as_text(planned: PlannedSessions, made: Schedule) -> str:
    """Return the plan of every session as text, a line each."""
    lines = []
    for each, at in zip(planned.sessions, made.plans, strict=True):
        if at is None:
            lines.append(f"  {each.id}: not served: {unserved_reason(planned, each)}")
            continue
        plan = planned.plans[each.objectives][at]
        where = ", ".join(f"{s} on {plan.tiers[task]}" for task, s in plan.settings.items())
        accuracy = 100 * (plan.accuracy or 0.0)
        lines.append(
            f"  {each.id}: {plan.latency_s * 1e3:.1f} ms, {accuracy:.1f} %, "
            f"{plan.usd_per_h:.3f} $/h: {where}"
        )
    return "\n".join(lines)

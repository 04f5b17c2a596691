"""Sessions as a user sees them: opened and closed by commands, read from their topic."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from control.controller.session_commands import OPEN
from headrace.cells import columns, decimal, percent
from headrace.client.give_command import give
from headrace.client.topic_clients import Tail, decoded
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.errors import PipelineError, Unfeasible, Unsuccessful
from operators.outcomes import OUTCOMES
from schemas.count_names import count_name
from schemas.effects import REPORTS, SESSIONS
from schemas.enumerations import SessionState
from schemas.records import ANSWERED, CommandResult, Report, Session, SessionChoice
from schemas.unique_keys import unique_keys
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_kept
from streams.topics import physical

QUARTERS = 4
HEADINGS = ("session", "state", "SLO", "in time", "accuracy", "$/h", "plan, or why there is none")
LISTENED_S = 0.5  # reports come every 0.2 s
LOOK_EVERY_S = 0.1


def open_session(
    file: PipelineFile, kafka: KafkaConfig, session: str, asked: Mapping[str, Any]
) -> CommandResult:
    """Open a session; ``asked`` has the arguments that are given, ``plan`` as a path."""
    search_space(file)
    arguments = {name: str(value) for name, value in asked.items() if value is not None}
    if "plan" in arguments:
        arguments["plan"] = plan_in(Path(arguments["plan"]))
    return give(file, kafka, OPEN, {"session": session, **arguments})


def plan_in(path: Path) -> str:
    """Return the JSON in a file on one line; raise ``PipelineError``."""
    try:
        text = path.read_text(encoding="utf-8")
        return json.dumps(json.loads(text, object_pairs_hook=unique_keys))
    except OSError as error:
        raise PipelineError(f"the plan {path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise PipelineError(f"the plan {path} is no JSON: {error}") from error


def sessions(file: PipelineFile, kafka: KafkaConfig) -> list[Session]:
    """Return the open sessions, in the order of opening."""
    search_space(file)
    kept = read_kept(kafka, physical(file.pipeline.name, SESSIONS))
    found = [each for each in map(decoded, kept.values()) if isinstance(each, Session)]
    return sorted(found, key=lambda each: (each.opened_s, each.id))


def session_named(file: PipelineFile, kafka: KafkaConfig, name: str) -> Session:
    """Return one session; raise ``Unsuccessful`` if it is not open."""
    found = sessions(file, kafka)
    for each in found:
        if each.id == name:
            return each
    known = ", ".join(each.id for each in found[:10]) or "none"
    raise Unsuccessful(f"there is no session {name!r}; open are: {known}")


def serving(file: PipelineFile, kafka: KafkaConfig, name: str, within_s: float) -> Session:
    """Return the session once it serves; raise ``Unsuccessful`` after ``within_s``, and
    ``Unfeasible`` if no plan meets its objectives."""
    until = time.monotonic() + within_s
    while True:
        found = session_named(file, kafka, name)
        if found.state is SessionState.SERVING:
            return found
        if without_plan(found):
            raise Unfeasible(f"session {name!r}: {found.reason}")
        if time.monotonic() > until:
            raise Unsuccessful(
                f"session {name!r} does not serve after {within_s:g} s: it is {found.state}: "
                f"{found.reason}"
            )
        time.sleep(LOOK_EVERY_S)


def without_plan(session: Session) -> bool:
    """Return whether a session's search has ended without a plan, for its ``reason``."""
    return session.state is SessionState.WAITING and not session.plans


def outcomes(file: PipelineFile, kafka: KafkaConfig) -> dict[str, dict[str, float]]:
    """Return the queries of each session by outcome, as every egress counts them now."""
    newest: dict[str, Report] = {}
    since_s = time.time() - LISTENED_S
    with closing(Tail(kafka, physical(file.pipeline.name, REPORTS), since_s=since_s)) as tail:
        until = time.monotonic() + LISTENED_S
        while time.monotonic() < until:
            for record in map(decoded, tail.take(0.1)):
                if isinstance(record, Report) and record.pipeline == file.pipeline.name:
                    newest[record.node] = record
    return session_counts(newest.values())


def session_counts(reports: Iterable[Report]) -> dict[str, dict[str, float]]:
    """Return the queries of each session by outcome, from the newest report of each node."""
    found: dict[str, dict[str, float]] = {}
    for report in reports:
        for name, count in report.counts.items():
            _add(found, name, count)
    return found


def _add(found: dict[str, dict[str, float]], name: str, count: float) -> None:
    what, of = count_name(name)
    session, outcome = count_name(of)
    if what == "session":
        counts = found.setdefault(session, {})
        counts[outcome] = counts.get(outcome, 0.0) + count


def row(session: Session, counts: Mapping[str, float]) -> dict[str, Any]:
    """Return a session as JSON: fractions from 0 to 1, units in the keys."""
    chosen = session.plans[session.chosen] if session.chosen >= 0 else None
    ended = {name: count for name, count in counts.items() if name in OUTCOMES}
    total = sum(ended.values())
    labels = counts.get("labels", 0.0)
    return {
        "session": session.id,
        "state": str(session.state),
        "reason": session.reason,
        "slo": {
            "latency_ms": session.slo_s * 1e3,
            "accuracy": session.accuracy,
            "usd_per_h": session.usd_per_h,
        },
        "weight": session.weight,
        "plan": None if chosen is None else _chosen(chosen),
        "usd_per_h": None if chosen is None else chosen.usd_per_h,
        "plans": len(session.plans),
        "search": _search(session) if session.samples else None,
        "schedule_seconds": session.schedule_s,
        "queries": ended,
        "attainment": ended.get(ANSWERED, 0.0) / total if total else None,
        "accuracy": {
            "measured": counts["score"] / labels if labels else None,
            "samples": int(labels),
            "source": "labels" if labels else None,
        },
        "replanned": None if not session.replans else {
            "times": session.replans,
            "cause": session.cause,
            "detect_seconds": session.detect_s,
        },
        "switch_seconds": session.switch_s,
        "planned_s": session.planned_s,
        "serving_s": session.serving_s,
        "opened_s": session.opened_s,
        "changed_s": session.changed_s,
    }  # fmt: skip


def _chosen(chosen: SessionChoice) -> dict[str, Any]:
    return {
        "settings": dict(chosen.settings),
        "tiers": dict(chosen.tiers),
        "shares": {task: quarters / QUARTERS for task, quarters in chosen.quarters.items()},
        "latency_ms": chosen.latency_s * 1e3 or None,
        "accuracy": chosen.accuracy,
    }


def _search(session: Session) -> dict[str, Any]:
    return {
        "samples": session.samples,
        "steps": session.steps,
        "seconds": session.search_s,
        "first_seconds": session.first_s,
        "profile_seconds": session.profile_s,
        "stopped": session.stopped,
    }


def sessions_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return sessions as a table."""
    return columns([HEADINGS, *map(_cells, rows)], left=(0, 1, 6)) if rows else "no session is open"


def details(row: Mapping[str, Any]) -> list[str]:
    """Return the figures of a session's plan and of its search, a line each."""
    lines, plan, search = [], row["plan"], row["search"]
    if plan is not None and plan["accuracy"] is not None:
        lines.append(
            f"  planned: accuracy {plan['accuracy']:.3f}, {plan['latency_ms']:.0f} ms, "
            f"{row['usd_per_h']:.3f} $/h"
        )
    measured = row["accuracy"]
    if measured["samples"]:
        lines.append(
            f"  measured: accuracy {measured['measured']:.3f} by {measured['samples']} "
            f"{measured['source']}"
        )
    if row["serving_s"] is not None:
        lines.append(f"  first served {row['serving_s']:.1f} s after it was opened")
    if row["replanned"] is not None:
        anew = row["replanned"]
        times = "once" if anew["times"] == 1 else f"{anew['times']} times"
        lines.append(
            f"  replanned {times}; last cause: {anew['cause']}; "
            f"detected after {anew['detect_seconds']:.2f} s"
        )
    if search is not None and search["steps"]:
        lines.append(
            f"  search: {search['steps']} configurations in {search['seconds']:.1f} s, the first "
            f"plan after {search['first_seconds']:.1f} s, "
            f"{search['profile_seconds']:.1f} device seconds of profiling; schedule "
            f"{row['schedule_seconds']:.2f} s, switch-over {row['switch_seconds']:.2f} s; "
            + (f"stopped: {search['stopped']}" if search["stopped"] else "running")
        )
    return lines


def _cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    plan, measured, usd = each["plan"], each["accuracy"]["measured"], each["usd_per_h"]
    return (
        each["session"],
        each["state"],
        f"{each['slo']['latency_ms']:.0f} ms",
        percent(each["attainment"]),
        decimal(measured, 3),
        decimal(usd, 3),
        _placed(plan["settings"], plan["tiers"]) if plan else each["reason"],
    )


def _placed(settings: Mapping[str, str], tiers: Mapping[str, str]) -> str:
    return ", ".join(f"{setting} on {tiers[task]}" for task, setting in settings.items())


def candidates(plans: Sequence[SessionChoice]) -> list[str]:
    """Return the plans that a session may take, a line each."""
    lines = []
    for each in plans:
        parts = [
            f"{100 * q // QUARTERS} % of {each.tiers[t]}" for t, q in each.quarters.items() if q
        ]
        reserved = f" ({', '.join(parts)})" if parts else ""
        lines.append(
            f"  {each.usd_per_h:.3f} $/h, {each.latency_s * 1e3:.0f} ms: "
            f"{_placed(each.settings, each.tiers)}{reserved}"
        )
    return lines

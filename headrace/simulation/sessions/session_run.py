"""Play sessions that come and go: the nodes that run live, in virtual time, over a recording.

Users open their sessions by commands, send queries at their rates, and close them. The control app
searches plans through profilers that answer from the recording, schedules them and puts them in
force; ingress, workers and egress serve; links take their time. Every session's samples are those
of the recording, so that the accuracy of its answers is that of its plans' configurations.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from control.controller.session_commands import CLOSE, OPEN
from control.policies.solvers import solve, virtual_s
from control.problem.problem import PlanError
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import Listed, read_sessions
from headrace.roles.control_role import controller_maker
from headrace.roles.link_file import session_links
from headrace.simulation.sessions.session_nodes import RecordedProfilers, Recording
from operators.egress.egress import Egress
from operators.ingress.ingress import Ingress
from operators.outcomes import outcome_of
from operators.serving.worker import Worker
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    QUERIES,
    RESULTS,
    SESSIONS,
    Failed,
    Solve,
    Solved,
)
from schemas.enumerations import SessionState
from schemas.records import ANSWERED, Answer, Command, CommandResult, Query, Session
from streams.control_app.host import ControlHost
from streams.simulated.delays import Delays, drawn
from streams.simulated.simulated_driver import Simulated
from streams.topics import physical, topics

SETTLES_S = 2.0  # the pipeline is up before the first session opens
KEPT = (COMMAND_RESULTS, PLANS, RESULTS, SESSIONS)


@dataclass(slots=True)
class SessionResult:
    """The outcome of one session. ``served_s`` are the seconds in which it had a plan, ``usd`` is
    the cost of its plans in them, ``device_s`` the seconds of whole devices by tier."""

    session: Listed
    opened_s: float
    closed_s: float
    serving_s: float | None = None  # from opening until it served
    served_s: float = 0.0
    usd: float = 0.0
    device_s: dict[str, float] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)
    in_time: int = 0
    scores: list[float] = field(default_factory=list)
    last: Session | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsRun:
    """The results of a run of ``seconds``; ``plans`` were published, ``profile_s`` device seconds
    of profiling spent; ``devices`` are those of each shared tier. ``refused`` has the reason by
    session that it could not be opened, or ""."""

    seconds: float
    results: tuple[SessionResult, ...]
    plans: int
    profile_s: float
    devices: Mapping[str, int]
    refused: Mapping[str, str]


def played_sessions(
    file: PipelineFile, sessions: Path, recorded: Path, seconds: float, seed: int
) -> SessionsRun:
    """Play the sessions of a file; raises ``PipelineError`` and ``PlanError``."""
    space = search_space(file)
    listed = read_sessions(sessions, space)
    recording = Recording(file.pipeline, space, read_truth(recorded, space.space))
    profilers = RecordedProfilers(space, recording, space.profilers)
    delays = drawn(np.random.default_rng([seed, 2]))
    system = simulated_system(file, space, recording, profilers, delays)
    results = lives(listed, SETTLES_S, seconds)
    payload = b"\0" * int(recording.truth.sent[:, 0].mean())
    for entry in session_inputs(file, results, payload, seed):
        system.input(*entry)
    system.run(SETTLES_S + seconds + file.pipeline.longest_deadline_s + 1.0)
    records = {topic: written_records(system, topic) for topic in KEPT}
    return summed(file, recording, records, results, seconds, profilers.spent_s)


def lives(listed: Sequence[Listed], from_s: float, seconds: float) -> dict[str, SessionResult]:
    """Return the results by session, still empty, of a run of ``seconds`` that begins at
    ``from_s``."""
    return {each.id: _life(each, from_s, from_s + seconds) for each in listed}


def _life(session: Listed, from_s: float, ends_s: float) -> SessionResult:
    opened_s = from_s + session.opens_s
    closed_s = ends_s if session.lasts_s is None else min(opened_s + session.lasts_s, ends_s)
    return SessionResult(session, opened_s, closed_s)


def simulated_system(
    file: PipelineFile, space: SessionSpace, recording: Recording, profilers: RecordedProfilers,
    delays: Delays,
) -> Simulated:  # fmt: skip
    """Return the pipeline of a file in virtual time, which keeps the records of ``KEPT``."""
    pipeline = file.pipeline
    seats = {
        worker: device
        for tier in file.cluster.tiers
        for number in range(tier.count)
        for worker, device in tier.seats(f"{tier.name}-{number}").items()
    }
    links = session_links(space, emulated=True)
    slots = {t.name: t.partitions for t in topics(pipeline)}
    inputs = range(slots[physical(pipeline.name, QUERIES)])
    return Simulated(
        pipeline,
        {
            "control": ControlHost(controller_maker(file)()),
            "ingress": Ingress("ingress", pipeline, inputs, incarnation=0.0),
            "egress": Egress("egress", pipeline, range(pipeline.egress_partitions),
                             incarnation=0.0, links=links),
            "profiler": profilers,
            **{
                name: Worker(name, pipeline, device, incarnation=0.0, links=links)
                for name, device in seats.items()
            },
        },
        lambda node, key: recording.setting(key, seats[node].partition("@")[2]),
        delays,
        solve=_solved,
        keep=KEPT,
    )  # fmt: skip


def _solved(effect: Solve) -> tuple[Solved | Failed, float]:
    try:
        return Solved(effect.job, solve(effect.solver, effect.problem)), virtual_s(effect.solver)
    except PlanError as error:
        return Failed(effect.job, str(error)), virtual_s(effect.solver)


Entry = tuple[float, str, int, Command | Query]  # time, topic, partition


def session_inputs(
    file: PipelineFile, results: Mapping[str, SessionResult], payload: bytes, seed: int
) -> list[Entry]:
    """Return the commands and queries of sessions; gaps of queries are exponential."""
    rng = np.random.default_rng([seed, 1])
    found: list[Entry] = []
    for number, each in enumerate(results.values()):
        if each.opened_s < each.closed_s:
            found += _entries(file.pipeline.name, each, number, payload, rng)
    return found


def _entries(
    pipeline: str, result: SessionResult, number: int, payload: bytes, rng: np.random.Generator
) -> Iterator[Entry]:
    session = result.session
    wanted = {"session": session.id, **_objectives(session)}
    opening = Command(id=_opening(number), pipeline=pipeline, action=OPEN, arguments=wanted)
    yield result.opened_s, COMMANDS, 0, opening
    closing = Command(
        id=f"{CLOSE}-{number}", pipeline=pipeline, action=CLOSE, arguments={"session": session.id}
    )
    yield result.closed_s, COMMANDS, 0, closing
    for at, at_s in enumerate(_times(session.qps, result.opened_s, result.closed_s, rng)):
        query = Query(payload=payload, id=f"{session.id}#{at}", session=session.id)
        yield at_s, QUERIES, (number + at) % 4, query


def _opening(number: int) -> str:
    """Return the id of the command that opens a session."""
    return f"{OPEN}-{number}"


def _times(qps: float, from_s: float, upto_s: float, rng: np.random.Generator) -> Iterator[float]:
    at_s = from_s
    while qps > 0 and (at_s := at_s + rng.exponential(1 / qps)) < upto_s:
        yield at_s


def _objectives(session: Listed) -> dict[str, str]:
    slo_s, accuracy, usd_per_h = session.objectives
    asked = {
        "slo": None if slo_s is None else f"{slo_s * 1e3:g}ms", "accuracy": accuracy,
        "cost": usd_per_h, "weight": session.weight,
    }  # fmt: skip
    return {name: str(value) for name, value in asked.items() if value is not None}


# ---------------------------------------------------------------------- results


def summed(
    file: PipelineFile, recording: Recording, records: Mapping[str, Sequence[Any]],
    results: dict[str, SessionResult], seconds: float, profile_s: float,
) -> SessionsRun:  # fmt: skip
    """Return the results of the sessions; ``records`` are those of the topics ``KEPT``, each in its
    order."""
    space = search_space(file)
    for session in records[SESSIONS]:
        results[session.id].last = session
    for name, result in results.items():
        rows = [each for each in records[SESSIONS] if each.id == name]
        _serving(result, rows)
    for answer in records[RESULTS]:
        if isinstance(answer, Answer):
            _answered(results[answer.id.rpartition("#")[0]], answer, file, recording)
    refusals = {
        each.id: each.message
        for each in records[COMMAND_RESULTS]
        if isinstance(each, CommandResult) and not each.ok
    }
    refused = {name: refusals.get(_opening(n), "") for n, name in enumerate(results)}
    return SessionsRun(
        seconds=seconds, results=tuple(results.values()), plans=len(records[PLANS]),
        profile_s=profile_s, refused=refused,
        devices={name: n for name, n in space.counts.items() if not space.tiers[name].own},
    )  # fmt: skip


def written_records(system: Simulated, topic: str) -> list[Any]:
    """Return the records of a topic in the order of writing."""
    rows = [row for each in system.written(topic).values() for row in each]
    return [record for record, _ in sorted(rows, key=lambda row: row[1])]


def _serving(result: SessionResult, rows: Sequence[Session]) -> None:
    """Sum the seconds and dollars between a session's records in which it had a plan."""
    ends = [*(each.changed_s for each in rows[1:]), result.closed_s]
    for session, ends_s in zip(rows, ends, strict=False):
        if session.chosen < 0 or session.state is SessionState.CLOSING:
            continue
        if result.serving_s is None:
            result.serving_s = session.changed_s - result.opened_s
        lasted_s = max(0.0, ends_s - session.changed_s)
        result.served_s += lasted_s
        plan = session.plans[session.chosen]
        result.usd += lasted_s * plan.usd_per_h / 3600
        for task, quarters in plan.quarters.items():
            tier = plan.tiers[task]
            before_s = result.device_s.get(tier, 0.0)
            result.device_s[tier] = before_s + lasted_s * quarters / QUARTERS


def _answered(
    result: SessionResult, answer: Answer, file: PipelineFile, recording: Recording
) -> None:
    outcome = outcome_of(answer)
    result.outcomes[outcome] = result.outcomes.get(outcome, 0) + 1
    if outcome != ANSWERED:
        return
    result.in_time += 1
    keys = {hop.task: hop.key for path in answer.paths for hop in path}
    configuration = recording.index([keys[task] for task in file.pipeline.task_names])
    scores = recording.truth.scores[configuration]
    result.scores.append(float(scores[(result.in_time - 1) % len(scores)]))

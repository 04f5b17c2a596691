"""``headrace search``: search a session's query plan over recorded profiles.

Elapsed time is the search's measured seconds plus the recorded profiling seconds of the reference
device; the search does not wait for the latter.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from control.policies import policy_named
from control.policies.compass.camo import Profiled, Proposal, SearchOptions, SessionSearch, Slo
from control.policies.compass.sequential_test import StopRule, Tested, run_test
from control.policies.compass.space import Space
from control.problem.problem import PlanError
from headrace.config.pipeline_file import PipelineFile
from headrace.config.session_space import SessionSpace
from headrace.errors import PipelineError
from headrace.planning.recorded_truth import RecordedTruth

KINDS = ("compass", "circinus")
SECONDS_PER_H = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Options of the command line; None: the file's value."""

    session: str = "cli"
    accuracy: float | None = None
    latency_s: float | None = None
    usd_per_h: float | None = None
    deadline_s: float | None = None
    spend_usd: float | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One proposal and its test result. ``cached`` are the tasks whose outputs were known."""

    proposal: Proposal
    tested: Tested
    cached: tuple[str, ...]
    profile_s: float
    propose_s: float = 0.0
    compliant: bool = False


@dataclass(slots=True, kw_only=True)
class Found:
    """A search's state and result. ``stopped`` is why it ended: space, deadline, spend, steps."""

    asked: Asked
    slo: Slo
    sessions: SessionSpace
    search: SessionSearch
    stopped: str = ""
    steps: list[Step] = field(default_factory=list)
    device_s: float = 0.0
    usd: float = 0.0
    elapsed_s: float = 0.0
    first: tuple[float, int] | None = None  # seconds and steps until the first compliant plan


def session_space(file: PipelineFile) -> SessionSpace:
    """Return the file's search space; raise ``PipelineError`` if it has none."""
    if file.sessions is None:
        raise PipelineError(
            f"{file.path}: there is nothing to search: the cluster has no tiers; add cluster.tiers "
            "and knobs to the tasks"
        )
    return file.sessions


def search_recorded(
    file: PipelineFile,
    truth: RecordedTruth,
    asked: Asked,
    told: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Search over a recording; call ``told`` after every step. Raises ``PlanError``."""
    sessions = session_space(file)
    options = policy_options(file)
    slo = _slo(sessions, asked)
    rule = replace(_rule(options), population=min(len(each) for each in truth.scores))
    deployment = sessions.deployment(truth.memory)
    search = SessionSearch(
        deployment,
        slo,
        SearchOptions(
            committee=str(options["members"]), rule=rule, history=int(options["history"])
        ),
        truth.sent,
    )
    found = Found(asked=asked, slo=slo, sessions=sessions, search=search)
    price = max((tier.price for tier in sessions.tiers.values()), default=0.0)
    profiler = _Recorded(sessions.space, truth, slo, rule)
    while True:
        began = time.perf_counter()
        found.stopped = _stopped(found, options)
        proposal = None if found.stopped else search.ask()
        if proposal is None:
            found.stopped = found.stopped or "space"
            return found
        step, result = profiler.profile(proposal)
        added = search.tell(result)
        propose_s = time.perf_counter() - began
        _add(found, replace(step, propose_s=propose_s, compliant=bool(added)), price, truth)
        told(found)


def _add(found: Found, step: Step, price: float, truth: RecordedTruth) -> None:
    device_s = step.profile_s * truth.parallelism
    found.device_s += device_s
    found.usd += device_s * price / SECONDS_PER_H
    found.elapsed_s += step.propose_s + step.profile_s
    found.steps.append(step)
    if step.compliant and found.first is None:
        found.first = found.elapsed_s, len(found.steps)


def policy_options(file: PipelineFile) -> Mapping[str, Any]:
    """Return the options of the file's policy; raise ``PlanError`` if it does not search."""
    policy = policy_named(file.pipeline, file.pipeline.policy)
    if policy is None or policy.kind not in KINDS:
        kind = "none" if policy is None else policy.kind
        raise PlanError(
            f"the policy {file.pipeline.policy!r} is of kind {kind!r}, which does not search; name "
            f"one of kind {' or '.join(KINDS)}"
        )
    return policy.options


def _rule(options: Mapping[str, Any]) -> StopRule:
    samples = dict(options["samples"])
    unknown = sorted(set(samples) - {"least", "most"})
    if unknown:
        raise PlanError(f"samples has the key {unknown[0]!r}; it can have least and most")
    usual = StopRule()
    return StopRule(
        least=samples.get("least", usual.least),
        most=samples.get("most", usual.most),
        confidence=float(options["confidence"]),
        test=str(options["test"]),
    )


def _slo(sessions: SessionSpace, asked: Asked) -> Slo:
    accuracy = sessions.accuracy if asked.accuracy is None else asked.accuracy
    if accuracy is None:
        raise PlanError("the SLO names no accuracy; add slo: {accuracy: 0.9, ...} or --accuracy")
    cost = sessions.usd_per_h if asked.usd_per_h is None else asked.usd_per_h
    return Slo(
        accuracy=accuracy,
        latency_s=asked.latency_s or sessions.latency_s,
        usd_per_h=float("inf") if cost is None else cost,
    )


def _stopped(found: Found, options: Mapping[str, Any]) -> str:
    """Return the reason to stop the search (steps, deadline or spend), or ""."""
    asked = found.asked
    deadline = options["deadline"] if asked.deadline_s is None else asked.deadline_s
    spend = options["spend"] if asked.spend_usd is None else asked.spend_usd
    if asked.steps is not None and len(found.steps) >= asked.steps:
        return "steps"
    if found.elapsed_s >= deadline:
        return "deadline"
    return "spend" if spend and found.usd >= spend else ""


class _Recorded:
    """A profiler that reads scores and seconds from a recording, with a prefix cache."""

    def __init__(self, space: Space, truth: RecordedTruth, slo: Slo, rule: StopRule) -> None:
        self._space, self._truth, self._slo, self._rule = space, truth, slo, rule
        self._samples: dict[tuple[int, int], int] = {}  # cached outputs, by stage and prefix

    def profile(self, proposal: Proposal) -> tuple[Step, Profiled]:
        """Run the sequential test over the recorded scores of a configuration."""
        c, truth = proposal.configuration, self._truth
        tested = run_test(truth.scores[c], self._slo.accuracy, self._rule)
        seconds, cached = 0.0, []
        for stage, described in enumerate(self._space.stages):
            key = (stage, int(self._space.prefixes[c, stage]))
            known = self._samples.get(key, 0)
            if known >= tested.samples:
                cached.append(described.name)
            seconds += max(0, tested.samples - known) * float(truth.seconds[c, stage])
            self._samples[key] = max(known, tested.samples)
        step = Step(
            proposal=proposal,
            tested=tested,
            cached=tuple(cached),
            profile_s=seconds / truth.parallelism,
        )
        return step, Profiled(configuration=c, tested=tested, seconds=tuple(truth.seconds[c]))

"""``headrace search``: search a session's query plan over recorded or live profiles.

Over a recording, the elapsed time is that of profiling, in recorded seconds of the reference
device, for which the search does not wait. Its own seconds do not count, so that a deadline ends
equal searches after equal steps on any machine.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from control.policies import POLICIES, policy_named, spec_of
from control.policies.compass.search.camo import (
    Floats,
    Past,
    Profiled,
    Proposal,
    SessionSearch,
    Slo,
    may_comply,
)
from control.policies.compass.search.configuration_run import ProfileGoal
from control.policies.compass.search.placement_factors import session_deployment
from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.profile_run import ProfileRun
from control.policies.compass.search.search_step import SEARCHES, search_options
from control.policies.compass.search.sequential_test import Tested
from control.problem.problem import PlanError
from control.problem.session_space import SessionSpace
from control.problem.space import Space
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.planning.recorded_truth import RecordedTruth

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
    """One proposal and its test result. ``cached`` are the tasks whose outputs were known.

    ``profile_s`` are seconds of profiling by ``parallelism`` devices, ``wait_s`` the further
    seconds until the verdict. ``cheapest_usd`` is the $ an hour of the cheapest plan at that time.
    """

    proposal: Proposal
    tested: Tested
    cached: tuple[str, ...]
    profile_s: float
    propose_s: float = 0.0
    wait_s: float = 0.0
    compliant: bool = False
    cheapest_usd: float | None = None
    error: str = ""  # why the configuration cannot run


@dataclass(slots=True, kw_only=True)
class Found:
    """A search's state and result. ``stopped`` is why it ended: space, deadline, spend, steps."""

    asked: Asked
    slo: Slo
    sessions: SessionSpace
    search: SessionSearch
    deadline_s: float
    stopped: str = ""
    steps: list[Step] = field(default_factory=list)
    device_s: float = 0.0
    usd: float = 0.0
    elapsed_s: float = 0.0
    first: tuple[float, int] | None = None  # seconds and steps until the first compliant plan


class ProfileSource(Protocol):
    """Profiles configurations: from a recording, or through profilers.

    ``sent`` and ``memory`` are bytes known before profiling (``SessionSearch``, ``Deployment``);
    ``population`` is the size of a finite set of samples, None for an endless one; ``parallelism``
    the device seconds that are spent in a second; ``past`` earlier searches, oldest first;
    ``recorded`` whether its seconds are those of a recording.
    """

    @property
    def sent(self) -> Floats | None: ...
    @property
    def memory(self) -> Floats: ...
    @property
    def population(self) -> int | None: ...
    @property
    def parallelism(self) -> float: ...
    @property
    def past(self) -> Sequence[Past]: ...
    @property
    def recorded(self) -> bool: ...
    def profile(
        self, proposal: Proposal, goal: ProfileGoal, until_s: float
    ) -> tuple[Step, Profiled | None] | None:
        """Return a step and its profile; None if the search's ``until_s`` seconds are over.

        There is no profile of a configuration whose operators fail (``Step.error``).
        """
        ...


def searched(
    file: PipelineFile,
    source: ProfileSource,
    asked: Asked,
    progress: Callable[[Found], None] = lambda found: None,
) -> Found:
    """Search a session's plan; call ``progress`` after every step. Raises ``PlanError``."""
    sessions = search_space(file)
    options = policy_options(file)
    slo = _slo(sessions, asked)
    chosen = search_options(options, source.population)
    deployment = session_deployment(sessions, source.memory)
    search = SEARCHES[chosen.surrogate](deployment, slo, chosen, source.sent, source.past)
    goal = ProfileGoal(
        sessions.space, slo.accuracy, chosen.rule, partial(may_comply, deployment, slo)
    )
    found = Found(
        asked=asked,
        slo=slo,
        sessions=sessions,
        search=search,
        deadline_s=search_deadline_s(file, asked),
    )
    price = max((tier.price for tier in sessions.tiers.values()), default=0.0)
    while True:
        began = time.perf_counter()
        found.stopped = _stopped(found, options)
        proposal = None if found.stopped else search.ask()
        if proposal is None:
            found.stopped = found.stopped or "space"
            return found
        proposed = time.perf_counter()
        left_s = found.deadline_s - found.elapsed_s - (proposed - began)
        profiled = source.profile(proposal, goal, left_s)
        if profiled is None:
            found.stopped = "deadline"
            return found
        step = replace(profiled[0], propose_s=proposed - began)
        _add(found, _learnt(search, step, profiled[1]), price, source)
        progress(found)


def _learnt(search: SessionSearch, step: Step, profiled: Profiled | None) -> Step:
    """Add a profile to the search; return the step with the verdict on its plans."""
    began = time.perf_counter()
    added: tuple[Priced, ...] = ()
    if profiled is None:
        search.exclude(step.proposal.configuration)
    else:
        added = search.tell(profiled)
    spent_s = time.perf_counter() - began
    best = search.best
    return replace(
        step, propose_s=step.propose_s + spent_s, compliant=bool(added),
        cheapest_usd=None if best is None else best.usd_per_h,
    )  # fmt: skip


def _add(found: Found, step: Step, price: float, source: ProfileSource) -> None:
    device_s = step.profile_s * source.parallelism
    found.device_s += device_s
    found.usd += device_s * price / SECONDS_PER_H
    found.elapsed_s += step.profile_s + step.wait_s
    if not source.recorded:
        found.elapsed_s += step.propose_s
    found.steps.append(step)
    if step.compliant and found.first is None:
        found.first = found.elapsed_s, len(found.steps)


def policy_options(file: PipelineFile) -> Mapping[str, Any]:
    """Return the options of the file's policy; raise ``PlanError`` if it does not search."""
    policy = policy_named(file.pipeline, file.pipeline.policy)
    if policy is None or not spec_of(policy.kind).sessions:
        kind = "none" if policy is None else policy.kind
        kinds = [each.name for each in POLICIES.values() if each.sessions]
        raise PlanError(
            f"the policy {file.pipeline.policy!r} is of kind {kind!r}, which does not search; name "
            f"one of kind {' or '.join(kinds)}"
        )
    return policy.options


def _slo(sessions: SessionSpace, asked: Asked) -> Slo:
    accuracy = sessions.accuracy if asked.accuracy is None else asked.accuracy
    if accuracy is None:
        raise PlanError("the SLO names no accuracy; add slo: {accuracy: 0.9, ...} or --accuracy")
    cost = sessions.usd_per_h if asked.usd_per_h is None else asked.usd_per_h
    return Slo(
        accuracy=accuracy,
        latency_s=sessions.latency_s if asked.latency_s is None else asked.latency_s,
        usd_per_h=float("inf") if cost is None else cost,
    )


def _stopped(found: Found, options: Mapping[str, Any]) -> str:
    """Return the reason to stop the search (steps, deadline or spend), or ""."""
    asked = found.asked
    spend = options["spend"] if asked.spend_usd is None else asked.spend_usd
    if asked.steps is not None and len(found.steps) >= asked.steps:
        return "steps"
    if found.elapsed_s >= found.deadline_s:
        return "deadline"
    return "spend" if spend and found.usd >= spend else ""


def search_deadline_s(file: PipelineFile, asked: Asked) -> float:
    """Return the seconds after which a search ends; raise ``PlanError`` without a policy for it."""
    given = asked.deadline_s
    return float(policy_options(file)["deadline"] if given is None else given)


class RecordedProfiles:
    """A ``ProfileSource`` that reads scores and seconds from a recording, with a prefix cache."""

    past: Sequence[Past] = ()
    recorded = True

    def __init__(self, space: Space, truth: RecordedTruth) -> None:
        self._space, self._truth = space, truth
        self._samples: dict[tuple[int, int], int] = {}  # cached outputs, by stage and prefix
        self.sent, self.memory, self.parallelism = truth.sent, truth.memory, truth.parallelism
        self.population = min(len(each) for each in truth.scores)

    def profile(
        self, proposal: Proposal, goal: ProfileGoal, until_s: float
    ) -> tuple[Step, Profiled]:
        """Run the sequential test over the recorded scores of a configuration."""
        c, truth = proposal.configuration, self._truth
        run = ProfileRun(goal.floor, goal.rule, proposal.prior)
        while wanted := run.wanted():
            for first, upto in wanted:
                run.add(first, truth.scores[c][first:upto])
            if run.settled and not goal.may_comply(self._profiled(c, run.tested)):
                run.end_unfit()
        seconds, cached = self._cost(c, run.tested.samples)
        step = Step(
            proposal=proposal,
            tested=run.tested,
            cached=cached,
            profile_s=seconds / truth.parallelism,
        )
        return step, self._profiled(c, run.tested)

    def _profiled(self, configuration: int, tested: Tested) -> Profiled:
        return Profiled(
            configuration=configuration,
            tested=tested,
            seconds=tuple(self._truth.seconds[configuration]),
            sent=tuple(self._truth.sent[configuration]),
        )

    def _cost(self, configuration: int, samples: int) -> tuple[float, tuple[str, ...]]:
        """Return the device seconds of samples, and the tasks whose outputs were all cached."""
        seconds, cached = 0.0, []
        for stage, described in enumerate(self._space.stages):
            key = (stage, int(self._space.prefixes[configuration, stage]))
            known = self._samples.get(key, 0)
            if known >= samples:
                cached.append(described.name)
            seconds += max(0, samples - known) * float(self._truth.seconds[configuration, stage])
            self._samples[key] = max(known, samples)
        return seconds, tuple(cached)

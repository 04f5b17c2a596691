"""A running search, as a state machine: proposals in, requests for profiles out.

It holds the learnt profiles, tests the proposed configuration block by block, and stops at its
deadline, when its budget is spent, or when no other configuration could be better. The time to the
deadline starts with the first block that a profiler has run for the search, because known blocks do
not show that a profiler is available. It stops while no block comes for far longer than blocks
take: the requests of a profiler that died go to others only after seconds. A search that began
before a restart goes on with the seconds and the spending of the blocks that name it; the time
without a control app does not count.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise

from control.policies.compass.search.camo import NearestConfiguration, Profiled, may_comply
from control.policies.compass.search.configuration_run import ConfigurationRun, ProfileGoal
from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.profile_store import Block
from control.policies.compass.search.search_step import (
    SearchProblem,
    SearchStep,
    deployment_of,
    same_search,
)
from control.policies.compass.search.sequential_test import Estimate
from schemas.records import ProfileResult

SECONDS_PER_H = 3600.0
# No profiler answers without a block for this time and this many times that of the longest block.
SILENT_S, SILENT_BLOCKS = 1.0, 5.0


class SearchPhase(StrEnum):
    """The phase of a search."""

    PROPOSES = "proposes"
    PROFILES = "profiles"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """The limits of a search: seconds from its first block, $ of profiling (0: any) at ``price`` $
    an hour. ``ahead`` blocks beyond those needed keep as many profilers busy. ``priced``: the
    search only reprices known profiles, so it ends as soon as a plan complies."""

    deadline_s: float
    spend_usd: float
    price: float
    ahead: int = 1
    priced: bool = False


class SearchRun:
    """The state of one search, which began at ``began_s``. ``problem`` is that of the next step;
    ``stopped`` is why it ended (space, deadline, spend, priced); ``profile_s`` are the device
    seconds used. ``used_s`` are the seconds to its deadline that a search had used before a
    restart."""

    def __init__(
        self, problem: SearchProblem, limits: SearchLimits, began_s: float, used_s: float = 0.0
    ) -> None:
        self.problem = problem
        self.phase = SearchPhase.PROPOSES
        self.plans: tuple[Priced, ...] = ()
        self.nearest: NearestConfiguration | None = None
        self.stopped = ""
        self.error = ""  # of the newest configuration that could not be run
        self.began_s = began_s
        self.first_s: float | None = None  # the time of the first block
        self.profile_s = 0.0
        self.step = 0
        self._limits = limits
        slo = problem.slo
        self._goal = ProfileGoal(
            problem.sessions.space, slo.accuracy, problem.options.rule,
            partial(may_comply, deployment_of(problem), slo),
        )  # fmt: skip
        self._used_s = used_s
        self._run = self._new_run(-1)
        self._paused_s: float | None = None
        self._heard_s, self._longest_s = began_s, 0.0  # last sign of a profiler; s of a block
        self._silent = False
        self._counted: set[Block] = set()

    @property
    def waits(self) -> bool:
        """Whether it waits for a profiler: none has run a first block, or none answers now."""
        return self.phase is SearchPhase.PROFILES and (self.first_s is None or self._silent)

    @property
    def steps(self) -> int:
        """The number of configurations profiled so far."""
        return len(self.problem.learnt)

    @property
    def configuration(self) -> int:
        """The configuration being profiled."""
        return self._run.configuration

    def proposed(self, step: SearchStep, now: float) -> None:
        """Process the result of a step: profile its proposal, unless the search is over."""
        self.plans, self.nearest = step.plans, step.nearest
        if self._limits.priced and step.plans:
            self._end("priced")
        elif step.proposal is None:
            self._end("space")
        elif self._spent():
            self._end("spend")
        elif self._late(now):
            self._end("deadline")
        else:
            self.phase, self.step = SearchPhase.PROFILES, self.step + 1
            self._heard_s = now
            self._run = self._new_run(step.proposal.configuration, step.proposal.prior)

    def pause(self, now: float) -> None:
        """Stop the clock of the deadline while others have the profilers."""
        if self._paused_s is None:
            self._paused_s = now

    def resume(self, now: float) -> None:
        """Restart the clock of the deadline."""
        if self._paused_s is not None:
            self._heard_s += now - self._paused_s
            if self.first_s is not None:
                self.first_s += now - self._paused_s
        self._paused_s = None

    def profile(self, blocks: Mapping[Block, ProfileResult], now: float) -> tuple[Block, ...]:
        """Take the known blocks; return those to request now, as (first, upto).

        Once the test is decided, the search proposes again. Raises ``PlanError`` if there are too
        few samples.
        """
        if self.phase is not SearchPhase.PROFILES:
            return ()
        run = self._run
        came = run.take(blocks)
        for block, asked in came:
            self._count(block, now, asked=asked)
        self._listen(now, heard=bool(came))
        if run.failed is not None:
            self.error = run.failed.error
            self._learn(run.configuration)
        elif run.ended:
            self._learn(run.profile)
        elif self._late(now):
            self._end("deadline")
        else:
            return run.due(now)
        return ()

    def _listen(self, now: float, *, heard: bool) -> None:
        """Stop the clock of the deadline, until the next look, while no profiler answers."""
        if heard:
            self._heard_s = now
        self._silent = now - self._heard_s > _patience_s(self._longest_s)
        if self._silent:
            self.pause(now)

    def _count(self, block: ProfileResult, now: float, *, asked: bool) -> None:
        """Count a block that was run for this search, ``asked`` for now or before a restart."""
        at = self._run.configuration, block.first
        if at in self._counted or not (asked or same_search(block.search, self.problem.search)):
            return
        self._counted.add(at)  # a configuration may be profiled further
        if self.first_s is None:
            self.first_s = now - self._used_s
        self.profile_s += block.spent_s
        self._longest_s = max(self._longest_s, block.spent_s)

    def _learn(self, found: Profiled | int) -> None:
        self.problem = replace(self.problem, learnt=(*self.problem.learnt, found))
        self.phase = SearchPhase.PROPOSES

    def _new_run(self, configuration: int, prior: Estimate | None = None) -> ConfigurationRun:
        return ConfigurationRun(configuration, self._goal, self._limits.ahead, prior)

    def _late(self, now: float) -> bool:
        return self.first_s is not None and now - self.first_s >= self._limits.deadline_s

    def _spent(self) -> bool:
        limits = self._limits
        usd = self.profile_s * limits.price / SECONDS_PER_H
        return bool(limits.spend_usd) and usd >= limits.spend_usd

    def _end(self, why: str) -> None:
        self.phase, self.stopped = SearchPhase.ENDED, why


def used_s(blocks: Iterable[ProfileResult]) -> float:
    """Return the seconds from the first block of a search to its last, by the profilers' clocks,
    without the time in which no profiler answered."""
    used, longest_s = 0.0, 0.0
    for before, after in pairwise(sorted(blocks, key=lambda each: each.finished_s)):
        longest_s = max(longest_s, before.spent_s)
        used += min(after.finished_s - before.finished_s, _patience_s(longest_s))
    return used


def _patience_s(longest_s: float) -> float:
    """Return the time without a block after which no profiler answers."""
    return SILENT_S + SILENT_BLOCKS * longest_s

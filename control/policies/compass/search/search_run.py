"""A search under way, as a state machine: proposals in, requests for profiles out.

It holds what has been learnt, tests the proposed configuration block by block, and stops at its
deadline, when its money is spent, or when no other configuration could be better. The deadline
begins with the first block that a profiler has run for it: blocks that were known before do not
say that one serves. A search that began
in an earlier life of its process keeps its deadline and what it has spent: both follow from the
times at which its blocks were finished.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from control.policies.compass.search.camo import Nearest
from control.policies.compass.search.pricing import Priced
from control.policies.compass.search.profile_run import ProfileRun
from control.policies.compass.search.profile_store import Block, profiled
from control.policies.compass.search.search_step import SearchProblem, SearchStep
from schemas.records import ProfileResult

ASK_AGAIN_S = 15.0  # a profiler answers a block that it has run from its memory
SECONDS_PER_H = 3600.0


class Phase(StrEnum):
    """What a search does."""

    PROPOSES = "proposes"
    PROFILES = "profiles"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """When a search ends: seconds from its first block, $ of profiling (0: any) at ``price`` $ an
    hour. ``ahead`` blocks beyond those needed keep as many profilers busy. ``priced``: it ends as
    soon as a plan complies, as one whose profiles are known and whose prices have changed."""

    deadline_s: float
    spend_usd: float
    price: float
    ahead: int = 1
    priced: bool = False


class SearchRun:
    """The state of one search, which began at ``began_s``. ``problem`` is that of the next step;
    ``stopped`` says why it ended (space, deadline, spend, priced), ``profile_s`` are the device
    seconds that it has used. ``resumed``: it began in an earlier life."""

    def __init__(
        self, problem: SearchProblem, limits: SearchLimits, began_s: float, *, resumed: bool = False
    ) -> None:
        self.problem = problem
        self.phase = Phase.PROPOSES
        self.plans: tuple[Priced, ...] = ()
        self.nearest: Nearest | None = None
        self.stopped = ""
        self.began_s = began_s
        self.first_s: float | None = None  # the time of the first block
        self.profile_s = 0.0
        self.step = 0
        self._limits = limits
        self._resumed = resumed
        self._configuration = -1
        self._test = self._new_test()
        self._taken: list[ProfileResult] = []
        self._asked: dict[int, float] = {}  # first sample of a block to when it was asked for

    @property
    def steps(self) -> int:
        """The number of configurations profiled so far."""
        return len(self.problem.learnt)

    @property
    def configuration(self) -> int:
        """The configuration that is profiled."""
        return self._configuration

    def proposed(self, step: SearchStep, now: float) -> None:
        """Take the result of a step: profile its proposal, unless the search is over."""
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
            self.phase, self.step = Phase.PROFILES, self.step + 1
            self._configuration = step.proposal.configuration
            self._test, self._taken, self._asked = self._new_test(), [], {}

    def profile(self, blocks: Mapping[Block, ProfileResult], now: float) -> tuple[Block, ...]:
        """Take the blocks that are known; return those to ask for now, as (first, upto).

        Once the test is decided, the search proposes again. Raises ``PlanError`` if there are too
        few samples.
        """
        while self.phase is Phase.PROFILES and (wanted := self._test.wanted(self._limits.ahead)):
            known = [(f, b) for f, _ in wanted if (b := blocks.get((self._configuration, f)))]
            if any(block.error for _, block in known):
                self._learn(self._configuration)
            elif known:
                for first, block in known:
                    self._take(first, block, now)
            elif self._late(now):
                self._end("deadline")
            else:
                return self._due(wanted, now)
        if self.phase is Phase.PROFILES:
            found = profiled(
                self.problem.sessions.space, self._configuration, self._test.tested, self._taken
            )
            self.problem = replace(self.problem, learnt=(*self.problem.learnt, found))
            self.phase = Phase.PROPOSES
        return ()

    def _take(self, first: int, block: ProfileResult, now: float) -> None:
        ours = first in self._asked or (self._resumed and block.finished_s >= self.began_s)
        if self.first_s is None and ours:
            self.first_s = min(now, max(self.began_s, block.finished_s)) if self._resumed else now
        self.profile_s += block.spent_s if ours else 0.0
        self._taken.append(block)
        self._test.add(first, block.scores)

    def _learn(self, failing: int) -> None:
        self.problem = replace(self.problem, learnt=(*self.problem.learnt, failing))
        self.phase = Phase.PROPOSES

    def _due(self, wanted: tuple[Block, ...], now: float) -> tuple[Block, ...]:
        before = now - ASK_AGAIN_S
        due = tuple(each for each in wanted if self._asked.get(each[0], float("-inf")) <= before)
        self._asked |= {first: now for first, _ in due}
        return due

    def _new_test(self) -> ProfileRun:
        return ProfileRun(self.problem.slo.accuracy, self.problem.options.rule)

    def _late(self, now: float) -> bool:
        return self.first_s is not None and now - self.first_s >= self._limits.deadline_s

    def _spent(self) -> bool:
        limits = self._limits
        usd = self.profile_s * limits.price / SECONDS_PER_H
        return bool(limits.spend_usd) and usd >= limits.spend_usd

    def _end(self, why: str) -> None:
        self.phase, self.stopped = Phase.ENDED, why

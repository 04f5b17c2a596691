"""The profiling of one configuration by profilers, block by block."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from control.policies.compass.search.camo import Profiled
from control.policies.compass.search.profile_run import ProfileRun
from control.policies.compass.search.profile_store import Block, profiled
from control.policies.compass.search.sequential_test import Estimate, StopRule, Tested
from control.problem.space import Space
from schemas.records import ProfileResult

ASK_AGAIN_S = 15.0  # a profiler answers a block that it has run from its memory


@dataclass(frozen=True, slots=True)
class ProfileGoal:
    """The question of a profile: whether the accuracy reaches ``floor``. It is void if no plan
    ``may_comply`` by the seconds and bytes of the samples so far."""

    space: Space
    floor: float
    rule: StopRule
    may_comply: Callable[[Profiled], bool]


class ConfigurationRun:
    """The requested blocks of a configuration, and those that were taken.

    ``ahead`` blocks beyond those needed keep as many profilers busy. ``failed`` is the block in
    which the configuration crashed or hung its operator, if any. Its test weighs in the ``prior``.
    """

    def __init__(
        self, configuration: int, goal: ProfileGoal, ahead: int, prior: Estimate | None = None
    ) -> None:
        self.configuration = configuration
        self.taken: list[ProfileResult] = []
        self.failed: ProfileResult | None = None
        self._ahead = ahead
        self._goal = goal
        self._test = ProfileRun(goal.floor, goal.rule, prior)
        self._asked: dict[int, float] = {}  # first sample of a block -> time of its request

    @property
    def tested(self) -> Tested:
        """The state of the test."""
        return self._test.tested

    @property
    def ended(self) -> bool:
        """Whether no further block is wanted."""
        return self.failed is not None or not self._test.wanted(self._ahead)

    def take(self, blocks: Mapping[Block, ProfileResult]) -> list[tuple[ProfileResult, bool]]:
        """Take the wanted blocks that are known; return each with whether this run requested it.

        Raises ``PlanError`` if there are too few samples.
        """
        came: list[tuple[ProfileResult, bool]] = []
        while self.failed is None and (wanted := self._test.wanted(self._ahead)):
            known = [(f, b) for f, _ in wanted if (b := blocks.get((self.configuration, f)))]
            self.failed = next((block for _, block in known if block.error), None)
            if self.failed is not None or not known:
                break
            for first, block in known:
                came.append((block, first in self._asked))
                self.taken.append(block)
                self._test.add(first, block.scores)
            if self._test.settled and not self._goal.may_comply(self.profile):
                self._test.end_unfit()
        return came

    @property
    def profile(self) -> Profiled:
        """The profile from the blocks taken so far."""
        return profiled(self._goal.space, self.configuration, self.tested, self.taken)

    def due(self, now: float) -> tuple[Block, ...]:
        """Return the blocks to request now, as (first, upto): new ones, and those without an answer
        for ``ASK_AGAIN_S``."""
        before = now - ASK_AGAIN_S
        wanted = self._test.wanted(self._ahead)
        due = tuple(each for each in wanted if self._asked.get(each[0], float("-inf")) <= before)
        self._asked |= {first: now for first, _ in due}
        return due

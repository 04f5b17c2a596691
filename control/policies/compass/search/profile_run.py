"""Decide which samples of a configuration to run next, and when its test is decided.

Samples come in blocks of ``rule.look``, in any order and from several profilers. The test uses the
contiguous samples from the first one on, at the counts of its stopping rule, so that the verdict
does not depend on the order of the blocks.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from control.policies.compass.search.sequential_test import (
    Estimate,
    Floats,
    StopRule,
    Tested,
    Verdict,
    look,
    plain,
)
from control.problem.problem import PlanError

UNTESTED = Tested(Verdict.OPEN, 0, 0.5, Estimate(0.0, 0.25, 1.0))


class ProfileRun:
    """The test of one configuration against ``floor``, with a ``prior`` or without."""

    def __init__(self, floor: float, rule: StopRule, prior: Estimate | None = None) -> None:
        self._floor, self._rule, self._prior = floor, rule, prior
        self._blocks: dict[int, Floats] = {}
        self.tested = UNTESTED

    def wanted(self, ahead: int = 0) -> tuple[tuple[int, int], ...]:
        """Return the blocks (first, upto) without scores that the next look needs.

        ``ahead`` further blocks keep profilers busy while the scores are in flight. Empty once the
        test is decided.
        """
        if self.tested.verdict is not Verdict.OPEN:
            return ()
        next_look = next(n for n in self._counts() if n > self.tested.samples)
        # Request all samples up to the least at once; an early rejection voids the rest.
        upto = max(next_look, self._rule.least) + ahead * self._rule.look
        upto = min(upto, self._rule.most)
        return tuple(each for each in blocks(self._rule, upto) if each[0] not in self._blocks)

    def add(self, first: int, scores: Sequence[float] | Floats) -> Tested:
        """Record a block's scores; return the state of the test.

        A block with fewer scores than requested marks the end of the samples, where the test is
        decided. Raises ``PlanError`` if there are fewer than two samples.
        """
        self._blocks.setdefault(first, np.asarray(scores, dtype=np.float64))
        end = first + len(scores)
        if len(scores) < self._rule.look and end < self._rule.most:
            self._end_at(end)
        known = self.scores
        for samples in self._counts():
            if self.tested.verdict is not Verdict.OPEN or samples > len(known):
                break
            # The samples may end at a look that left the test open: that look becomes the last.
            if samples > self.tested.samples or samples == self._rule.most:
                estimate = plain(known[:samples])
                self.tested = look(estimate, samples, self._floor, self._rule, self._prior)
        return self.tested

    @property
    def settled(self) -> bool:
        """Whether it has the least number of samples, enough for accurate seconds."""
        return self.tested.samples >= self._rule.least

    def end_unfit(self) -> None:
        """End an open test of a configuration that is too slow or too expensive in any case."""
        if self.tested.verdict is Verdict.OPEN:
            self.tested = replace(self.tested, verdict=Verdict.UNFIT)

    @property
    def scores(self) -> Floats:
        """The contiguous scores from the first sample on."""
        found: list[Floats] = []
        at = 0
        while len(block := self._blocks.get(at, ())):
            found.append(np.asarray(block))
            at += len(block)
        return np.concatenate(found) if found else np.zeros(0)

    def _end_at(self, end: int) -> None:
        if end < 2:
            raise PlanError(
                f"the samples end after {end}; a profile needs two with a truth at least: give "
                "the workload more of them, or label a session's answers with their `truth` "
                "(`right` and `of` do not say what other plans would have answered); inputs of an "
                "ingress with --input are among them once profiling.inputs names its broker"
            )
        self._rule = replace(self._rule, least=min(self._rule.least, end), most=end)

    def _counts(self) -> tuple[int, ...]:
        looks = self._rule.looks(self._rule.most)
        return looks if looks[-1] == self._rule.most else (*looks, self._rule.most)


def blocks(rule: StopRule, upto: int) -> tuple[tuple[int, int], ...]:
    """Return the blocks (first, upto) that cover the samples below ``upto``.

    They are whole, also beyond ``rule.most``: to a search with a larger one, a short block is the
    end of the samples.
    """
    return tuple((first, first + rule.look) for first in range(0, upto, rule.look))

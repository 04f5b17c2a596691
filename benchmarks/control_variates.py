"""How many samples control variates save in the test of one configuration, and why not more.

    python -m benchmarks.control_variates FILE TRUTH [--tests 400] [--seed 0]

A *control variate* uses the fixed order of the samples: other configurations have scores ``y`` on
the same samples, and their means over all samples are better known, so

    mean(x) - b (mean(y) - mean of y over all its samples),   b = cov(y)^-1 cov(y, x)

has the variance ``var(x) ((1 - R^2) / n + R^2 / N)``, R^2 being the share of x's variance that y
explains, n and N the numbers of samples.

Draws a configuration of the recording and a floor at most ``GAP`` from its mean, then samples with
replacement, so that the recorded means are the true ones. The plain t-test and the test with
control variates get the same samples. The variates are, of K other configurations within ``GAP`` of
the floor, those whose scores on N samples explain most of the first 50. In "known" their true means
are known, which no search can have, so it bounds the possible saving. The last rows each lift one
possible limit: the single variate, the least number of samples, and the cap.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.sequential_tests import run_test
from control.policies.compass.search.sequential_test import (
    Estimate,
    Floats,
    StopRule,
    Tested,
    Verdict,
    look,
    plain,
)
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.recorded_truth import read_truth

GAP = 0.1
RULE = StopRule()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``used`` variates of ``references`` configurations with ``length`` samples (None: their true
    means are known), under a stopping rule."""

    references: int
    length: int | None
    used: int = 1
    rule: StopRule = RULE

    def __str__(self) -> str:
        """Name the case as a row of the table."""
        length = "known" if self.length is None else str(self.length)
        limits = f"{self.rule.least} to {self.rule.most} samples"
        return f"best {self.used} of {self.references:3}, {length:>5}, {limits:18}"


FEW, MANY = StopRule(least=10), StopRule(most=3500)
CASES = (
    Case(references=1, length=350),
    Case(references=12, length=350),
    Case(references=100, length=350),
    Case(references=12, length=1000),
    Case(references=100, length=1000),
    Case(references=12, length=None),
    Case(references=100, length=None),
    Case(references=100, length=None, used=5),
    Case(references=100, length=None, rule=FEW),
    Case(references=100, length=None, rule=MANY),
    Case(references=100, length=None, rule=StopRule(least=10, most=3500)),
    Case(references=100, length=None, used=5, rule=StopRule(least=10, most=3500)),
)


@dataclass(frozen=True, slots=True)
class Variates:
    """Scores of configurations on the samples in their order, and the means of all of theirs;
    ``samples`` is how many those are, None if the means are known."""

    scores: Floats
    means: Floats
    samples: int | None

    def __getitem__(self, chosen: Sequence[int]) -> "Variates":
        """Return some of them."""
        return Variates(self.scores[chosen], self.means[chosen], self.samples)


@dataclass(frozen=True, slots=True)
class Pair:
    """The same samples under both tests; ``good``: the configuration truly reaches the floor."""

    good: bool
    plain: Tested
    controlled: Tested


def controlled(scores: Floats, variates: Variates) -> Estimate:
    """Return the mean of scores, adjusted by variates that have scores on the same samples."""
    n, used = len(scores), len(variates.means)
    alone = plain(scores)
    others = variates.scores[:, :n]
    deviations = others - others.mean(axis=1, keepdims=True)
    slopes = np.linalg.lstsq(deviations.T, scores - scores.mean(), rcond=None)[0]
    rest = scores - scores.mean() - slopes @ deviations
    freedom = max(n - used - 1.0, 1.0)
    mean = float(scores.mean() - slopes @ (others.mean(axis=1) - variates.means))
    variance = float(rest @ rest) / freedom / n
    if variates.samples is not None:
        variance += float((slopes @ deviations).var(ddof=1)) / variates.samples
    if variance >= alone.variance:
        return alone
    return Estimate(mean, max(variance, (1 - 1 / n) / n / n), freedom)


def run_controlled(scores: Floats, floor: float, rule: StopRule, variates: Variates) -> Tested:
    """Run the test with control variates; before the least number of samples it is the plain
    test."""
    for samples in rule.looks(len(scores)):
        own = scores[:samples]
        estimate = plain(own) if samples < rule.least else controlled(own, variates)
        found = look(estimate, samples, floor, rule)
        if found.verdict is not Verdict.OPEN:
            break
    return found


def pairs(scores: Floats, tests: int, case: Case, seed: int) -> Iterator[Pair]:
    """Yield tests of drawn configurations; ``scores`` are by configuration and sample."""
    rule, rng = case.rule, np.random.default_rng(seed)
    means = scores.mean(axis=1)
    low, high = float(np.quantile(means, 0.6)), float(means.max()) - 0.002
    for _ in range(tests):
        floor = float(rng.uniform(low, high))
        near = rng.permutation(np.flatnonzero(np.abs(means - floor) <= GAP))
        tested, others = int(near[0]), near[1 : 1 + case.references]
        at = rng.integers(scores.shape[1], size=max(case.length or 0, rule.most))
        own, theirs = scores[tested, at[: rule.most]], scores[others][:, at]
        known = means[others] if case.length is None else theirs[:, : case.length].mean(axis=1)
        every = Variates(theirs, known, case.length)
        first = own[: RULE.least]
        order = sorted(range(len(others)), key=lambda n: controlled(first, every[[n]]).variance)
        yield Pair(
            bool(means[tested] >= floor),
            run_test(own, floor, rule),
            run_controlled(own, floor, rule, every[order[: case.used]]),
        )


def line(case: Case, found: Sequence[Pair]) -> str:
    """Return the summary of one case."""
    plain, ours = ([getattr(each, name) for each in found] for name in ("plain", "controlled"))
    saved = 1 - sum(o.samples for o in ours) / sum(p.samples for p in plain)
    return (
        f"{case}  saved {100 * saved:5.1f} %  plain: {_told(case, found, plain)}  "
        f"controlled: {_told(case, found, ours)}"
    )


def _told(case: Case, found: Sequence[Pair], tests: Sequence[Tested]) -> str:
    """Return the samples per test, and the tests that end at a limit or wrongly, as shares of
    all."""
    pairs = list(zip(found, tests, strict=True))
    shares = [
        [t.samples <= case.rule.least for t in tests],
        [t.samples >= case.rule.most for t in tests],
        [t.verdict is Verdict.ACCEPTED and not f.good for f, t in pairs],
        [t.verdict is Verdict.REJECTED and f.good for f, t in pairs],
    ]
    least, most, accepted, rejected = (100 * float(np.mean(each)) for each in shares)
    return (
        f"{np.mean([t.samples for t in tests]):.0f} samples ({least:.0f} % at the least number, "
        f"{most:.0f} % at the cap), {accepted:.1f} % false accepts, {rejected:.1f} % rejects"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, test and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("truth", type=Path, metavar="TRUTH")
    parser.add_argument("--tests", type=int, default=400, help="(400)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    options = parser.parse_args(arguments)
    space = search_space(read_pipeline_file(options.file)).space
    scores = np.array(read_truth(options.truth, space).scores)
    for case in CASES:
        print(line(case, list(pairs(scores, options.tests, case, options.seed))), flush=True)


if __name__ == "__main__":
    main()

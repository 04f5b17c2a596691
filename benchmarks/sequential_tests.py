"""What the rules of the sequential test cost, by how much of the scores' variance strata explain.

    python -m benchmarks.sequential_tests [--tests 2000] [--seed 0]

Drawn scores are 0 or 1, in ``STRATA`` equal strata of the samples (Circinus v1, section 4.1) whose
accuracies lie evenly around the mean; samples alternate between strata. A floor lies at most
``GAP`` from the mean. For each rule, on the same scores: samples until the verdict, and the shares
of all tests that were falsely accepted or rejected, with 95 % intervals (Student; Wilson).
``one-sided`` is Compass' rule, ``two-sided`` that of Circinus v1, ``stratified`` the one-sided test
with the variance within strata only.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from control.policies.compass.search.sequential_test import (
    Estimate,
    Floats,
    StopRule,
    Tested,
    Verdict,
    look,
    plain,
    stratified,
)
from control.problem.problem import PlanError
from headrace.results.statistics import mean_of

MEAN, GAP, STRATA = 0.75, 0.1, 4
EXPLAINED = (0.0, 0.02, 0.1, 0.2)  # of the variance; 1.0 to 1.6 % in the postcode example
RULES = ("one-sided", "two-sided", "stratified")


@dataclass(frozen=True, slots=True)
class Drawn:
    """The scores of one test in their order; ``good``: their true mean reaches the floor."""

    scores: Floats
    floor: float
    good: bool


def accuracies(explained: float) -> Floats:
    """Return the strata's accuracies: their variance is this share of a score's."""
    steps = np.linspace(-1.0, 1.0, STRATA)
    found: Floats = MEAN + steps * np.sqrt(explained * MEAN * (1 - MEAN) / np.mean(steps**2))
    return found


def drawn(explained: float, tests: int, most: int, seed: int) -> Iterator[Drawn]:
    """Yield tests: the samples of each round of ``STRATA`` are one of every stratum."""
    rng, chances = np.random.default_rng(seed), accuracies(explained)
    for _ in range(tests):
        floor = MEAN + float(rng.uniform(-GAP, GAP))
        scores = (rng.random(most) < np.resize(chances, most)).astype(float)
        yield Drawn(scores, floor, floor <= MEAN)


def run_test(
    scores: Floats,
    floor: float,
    rule: StopRule,
    strata: Sequence[int] = (),
    prior: Estimate | None = None,
) -> Tested:
    """Run a test over scores in their order, with a ``prior`` or without. Raises ``PlanError``
    without scores.

    With fewer than ``rule.most`` scores, the cap is at the last one.
    """
    if not len(scores):
        raise PlanError("no sample has a truth, so no accuracy can be measured; give labels")
    last = min(len(scores), rule.most)
    capped = StopRule(
        least=max(2, min(rule.least, last)), most=max(2, last), look=rule.look,
        confidence=rule.confidence, cap=rule.cap, test=rule.test, population=rule.population,
    )  # fmt: skip
    for samples in (*capped.looks(last), last):
        found = look(_estimate(scores[:samples], capped, strata), samples, floor, capped, prior)
        if found.verdict is not Verdict.OPEN:
            return found
    return found


def _estimate(scores: Floats, rule: StopRule, strata: Sequence[int]) -> Estimate:
    if len(scores) < rule.least or rule.test != "stratified":
        return plain(scores)  # before the least number, Chernoff's bound needs plain means
    return stratified(scores, strata)


def line(rule: str, explained: float, cases: Sequence[Drawn], tested: Sequence[Tested]) -> str:
    """Return a row of the table."""
    samples = mean_of([float(one.samples) for one in tested])
    wrong = [
        sum(t.verdict is verdict and c.good is good for c, t in zip(cases, tested, strict=True))
        for verdict, good in ((Verdict.ACCEPTED, False), (Verdict.REJECTED, True))
    ]
    told = []
    for count in wrong:
        low, high = scipy.stats.binomtest(count, len(cases)).proportion_ci(method="wilson")
        told.append(f"{100 * count / len(cases):.1f} ({100 * low:.1f} to {100 * high:.1f})")
    half = samples.half or 0.0
    return (
        f"| {100 * explained:g} | {rule} | {samples.value:.0f} ± {half:.0f} | {' | '.join(told)} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Test and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tests", type=int, default=2000, help="a row (2000)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    asked = parser.parse_args(arguments)
    print("| explained, % | rule | samples | falsely accepted, % | falsely rejected, % |")
    print("| --- | --- | --- | --- | --- |")
    for explained in EXPLAINED:
        rule = StopRule()
        cases = list(drawn(explained, asked.tests, rule.most, asked.seed))
        strata = np.resize(np.arange(STRATA), rule.most).tolist()
        for name in RULES:
            tested = [
                run_test(case.scores, case.floor, replace(rule, test=name), strata=strata)
                for case in cases
            ]
            print(line(name, explained, cases, tested), flush=True)


if __name__ == "__main__":
    main()

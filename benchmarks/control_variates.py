"""How many samples a control variate saves in the test of one configuration, and its errors.

    python -m benchmarks.control_variates FILE TRUTH [--tests 400] [--seed 0]

Draws a configuration of the recording and a floor at most ``GAP`` from its mean, then samples with
replacement, so that the recorded means are the true ones. The same samples are tested by the plain
t-test and with a control variate: of K configurations that are as near to the floor, the one whose
scores on N samples explain most of the first look. "known": its true mean is known, which no search
can have; it bounds what there is to save.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from control.policies.compass.search.sequential_test import (
    Floats,
    StopRule,
    Tested,
    Verdict,
    controlled,
    run_test,
)
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.planning.recorded_truth import read_truth

GAP = 0.1
RULE = StopRule()
KNOWN = 20_000  # samples of a reference whose mean is as good as known
CASES = ((1, 350), (12, 350), (100, 350), (12, 1000), (100, 1000), (12, KNOWN))


@dataclass(frozen=True, slots=True)
class Pair:
    """The same samples tested in both ways; ``good``: the configuration truly reaches the floor."""

    good: bool
    plain: Tested
    controlled: Tested


def pairs(scores: Floats, tests: int, case: tuple[int, int], seed: int) -> Iterator[Pair]:
    """Yield tests of drawn configurations; ``scores`` are by configuration and sample."""
    (most, length), rng = case, np.random.default_rng(seed)
    means = scores.mean(axis=1)
    low, high = float(np.quantile(means, 0.6)), float(means.max()) - 0.002
    for _ in range(tests):
        floor = float(rng.uniform(low, high))
        near = rng.permutation(np.flatnonzero(np.abs(means - floor) <= GAP))
        tested, references = int(near[0]), near[1 : 1 + most]
        at = rng.integers(scores.shape[1], size=max(length, RULE.most))
        own = scores[tested, at[: RULE.most]]
        least = own[: RULE.least]
        best = min(
            (scores[each, at[:length]] for each in references),
            key=lambda reference: controlled(least, reference).variance,
        )
        yield Pair(
            bool(means[tested] >= floor),
            run_test(own, floor, RULE),
            run_test(own, floor, RULE, reference=best),
        )


def line(case: tuple[int, int], found: Sequence[Pair]) -> str:
    """Return the summary of one case."""
    plain, ours = ([getattr(each, name) for each in found] for name in ("plain", "controlled"))
    saved = np.array([1 - o.samples / p.samples for p, o in zip(plain, ours, strict=True)])
    total = 1 - sum(o.samples for o in ours) / sum(p.samples for p in plain)
    length = "known" if case[1] == KNOWN else str(case[1])
    return (
        f"{case[0]:4} references of {length:>5}  saved {100 * total:5.1f} % of the samples "
        f"(median {100 * float(np.median(saved)):.0f} %)  plain: {_errors(found, plain)}  "
        f"controlled: {_errors(found, ours)}"
    )


def _errors(found: Sequence[Pair], tests: Sequence[Tested]) -> str:
    pairs = list(zip(found, tests, strict=True))
    accepted = np.mean([t.verdict is Verdict.ACCEPTED and not f.good for f, t in pairs])
    rejected = np.mean([t.verdict is Verdict.REJECTED and f.good for f, t in pairs])
    mean = np.mean([t.samples for t in tests])
    return (
        f"{mean:.0f} samples, {100 * accepted:.1f} % false accepts, {100 * rejected:.1f} % rejects"
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

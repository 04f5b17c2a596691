"""Compare the search's plan with the cheapest one, on a recording of every configuration.

    python -m benchmarks.planned_search FILE TRUTH [--slos 100] [--device-seconds 60] [--seed 0]

Draw SLOs (accuracy, latency) that some plan of the recording meets, search each without history,
and compare with the cheapest plan of all configurations whose recorded mean reaches the floor.
Prints the share of SLOs whose plan costs at most 10 % more than the cheapest (and 0.001 $/h), the
share of accepted plans whose recorded mean misses the floor, and the medians of device seconds,
steps and samples: all, and the first 50 of each configuration, which no other test saves.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from control.policies.compass.packing import QUARTERS
from control.policies.compass.search.camo import RULE
from control.policies.compass.search.placement_factors import session_deployment
from control.policies.compass.search.pricing import priced
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.planning.recorded_truth import RecordedTruth, read_truth
from headrace.planning.session_search import Asked, Found, RecordedProfiles, searched

NEAR, SPARE_USD_PER_H = 1.1, 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One search of one SLO. Costs are $ an hour; inf: no plan found."""

    accuracy: float
    latency_ms: float
    cheapest: float
    found: float
    near: bool
    false: bool  # the cheapest plan found misses the floor in the recording
    device_s: float
    first_device_s: float | None
    steps: int
    samples: int
    first_looks: int  # of the samples, those until the first look at a configuration's t-test


def cheapest(file: PipelineFile, truth: RecordedTruth, accuracy: float, latency_s: float) -> float:
    """Return the least $ an hour of a plan that complies in the recording; inf: none does."""
    deployment = session_deployment(search_space(file), truth.memory)
    good = np.flatnonzero([scores.mean() >= accuracy for scores in truth.scores])
    quick = deployment.latency(truth.seconds[good], truth.sent[good]) <= latency_s
    quarters = deployment.price.sum(axis=0) / QUARTERS  # every stage takes one at least
    floors = np.where(quick & deployment.fits[good], quarters, np.inf).min(axis=1, initial=np.inf)
    least = float("inf")
    for at in np.argsort(floors, kind="stable").tolist():
        if floors[at] >= least:
            break
        c = int(good[at])
        plans = priced(deployment, c, truth.seconds[c], truth.sent[c], latency_s)
        least = min([least, *(plan.usd_per_h for plan in plans)])
    return least


def slos(
    file: PipelineFile, truth: RecordedTruth, count: int, seed: int
) -> Iterator[tuple[float, float, float]]:
    """Yield SLOs (accuracy, seconds) with their cheapest cost, above 0 and finite."""
    rng = np.random.default_rng(seed)
    means = np.array([scores.mean() for scores in truth.scores])
    found = 0
    for _ in range(100 * count):
        accuracy = float(rng.uniform(np.quantile(means, 0.6), means.max() - 0.002))
        latency_s = float(rng.uniform(0.022, 0.06))
        cost = cheapest(file, truth, accuracy, latency_s)
        if 0 < cost < float("inf"):
            yield accuracy, latency_s, cost
            found += 1
        if found == count:
            return
    sys.exit("too few of the drawn SLOs have a plan; record more configurations or samples")


def row(found: Found, truth: RecordedTruth, slo: tuple[float, float, float]) -> Row:
    """Return the row of one search."""
    accuracy, latency_s, cost = slo
    best = found.search.best
    paid = float("inf") if best is None else best.usd_per_h
    first = found.first
    return Row(
        accuracy=accuracy,
        latency_ms=1e3 * latency_s,
        cheapest=cost,
        found=paid,
        near=paid <= NEAR * cost + SPARE_USD_PER_H,
        false=best is not None and bool(truth.scores[best.configuration].mean() < accuracy),
        device_s=found.device_s,
        first_device_s=None if first is None else sum(s.profile_s for s in found.steps[: first[1]]),
        steps=len(found.steps),
        samples=sum(step.tested.samples for step in found.steps),
        first_looks=sum(min(step.tested.samples, RULE.least) for step in found.steps),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse arguments, search and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("truth", type=Path, metavar="TRUTH")
    parser.add_argument("--slos", type=int, default=100, help="(100)")
    parser.add_argument("--device-seconds", type=float, default=60.0, help="(60)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument(
        "--json", type=Path, metavar="OUT", help="Write the searches here, after each."
    )
    options = parser.parse_args(arguments)
    file = read_pipeline_file(options.file)
    truth = read_truth(options.truth, search_space(file).space)
    rows = []
    for slo in slos(file, truth, options.slos, options.seed):
        source = RecordedProfiles(search_space(file).space, truth)
        asked = Asked(
            accuracy=slo[0], latency_s=slo[1], usd_per_h=float("inf"),
            deadline_s=options.device_seconds, spend_usd=0.0,
        )  # fmt: skip
        rows.append(row(searched(file, source, asked), truth, slo))
        print(f"{len(rows)} of {options.slos}: {line(rows)}", file=sys.stderr)
        if options.json:
            options.json.write_text(json.dumps([asdict(each) for each in rows]), encoding="utf-8")
    print(line(rows))


def line(rows: Sequence[Row]) -> str:
    """Return the summary of the searches."""
    first = [each.first_device_s for each in rows if each.first_device_s is not None] or [np.nan]
    return (
        f"cheapest within 10 %: {100 * np.mean([r.near for r in rows]):5.1f} %  "
        f"no plan: {100 * np.mean([not np.isfinite(r.found) for r in rows]):4.1f} %  "
        f"below the floor: {100 * np.mean([r.false for r in rows]):4.1f} %  "
        f"device seconds: {np.median([r.device_s for r in rows]):5.1f} "
        f"(first plan {np.median(first):4.2f})  steps: {np.median([r.steps for r in rows]):3.0f}  "
        f"samples: {np.median([r.samples for r in rows]):5.0f} "
        f"({np.median([r.first_looks for r in rows]):.0f} until first looks)"
    )


if __name__ == "__main__":
    main()

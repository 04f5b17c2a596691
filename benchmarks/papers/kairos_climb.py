"""Search the best mix of a rule of Kairos' comparison by hill climbing with the real nodes.

The climb begins at the five mixes that carry most under the rule in the data's simulation of all
mixes with a base device (``sim_allowable_exhaustive.csv``; ``threshold``, which the data lacks,
begins at the five best of the matching). It goes to a neighbour that keeps the SLO at 1 % more than
the present point carries, until there is none. Neighbours have one device more or less, or an
exchange between two types within the budget. Under ``threshold`` each mix has the size that
balances base and auxiliary devices, and the neighbours with the same mix have sizes near it.

A climb plays 10,000 queries per trial of a seed of its own, so that the capacities on the page,
which other seeds give, do not favour the mix that was found. Finished climbs are kept in
``OUT_DIR/climbs.jsonl``, so that an interrupted run resumes; remove the lines of a rule that has
changed.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.papers.kairos_cases import TRACE, case_file
from benchmarks.papers.kairos_compare import (
    BUDGET,
    COUNTS,
    PAPER,
    TYPES,
    Mix,
    Search,
    asked_of,
    balanced_threshold,
)
from benchmarks.papers.sources import table
from benchmarks.row_file import RowFile
from headrace.config.cluster_cost import prices
from headrace.simulation.capacity_search import WITHIN, CapacityRequest, capacity, trial

# The column of the data by which a climb's first mixes are chosen.
COLUMNS = {
    "earliest": "sim_clockwork_qps",
    "threshold": "sim_allowable_urgency1_qps",
    "fcfs": "sim_fcfs_qps",
}
STARTS = 5
SEED = 100  # of no capacity on the page
SIZE_STEPS = (-50, -20, -10, 10, 20, 50)  # items, of neighbouring thresholds
LARGEST = 1000  # items of a query


@dataclass(frozen=True, slots=True)
class Point:
    """A mix, and the threshold in items under the rule ``threshold`` (else 0)."""

    mix: Mix
    threshold: int = 0


@dataclass(frozen=True, slots=True)
class Summit:
    """The point where a climb ended, the rate that it carries in queries/s, and the points that
    were simulated."""

    point: Point
    qps: float
    evaluated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """One climb: the best mix found for a rule, and what it carries of the climb's seed."""

    model: str
    policy: str
    mix: Mix
    threshold: int
    qps: float
    evaluated: int


Carried = Callable[[Point, float], float]  # (point, first rate) -> its capacity in queries/s
Carries = Callable[[Point, float], bool]  # (point, rate) -> whether it keeps the SLO


def carries(asked: CapacityRequest, qps: float) -> bool:
    """Return whether a rate keeps the SLO, by one trial."""
    return trial(asked, qps).attainment >= asked.attainment


def climb(
    starts: Sequence[Point],
    first_qps: float,
    around: Callable[[Point], Sequence[Point]],
    carried: Carried,
    carries_rate: Carries,
) -> Summit:
    """Return the best of the starts, then of neighbours, until no neighbour carries 1 % more."""
    leader = starts[0]
    qps = carried(leader, first_qps)
    seen = {leader}
    ahead = [*starts, *around(leader)]
    while (point := next((each for each in ahead if each not in seen), None)) is not None:
        seen.add(point)
        more = qps * WITHIN
        if carries_rate(point, more):
            leader, qps = point, carried(point, more)
            ahead = [*starts, *around(leader)]
    return Summit(leader, qps, len(seen))


def neighbours(mix: Mix, costs: Sequence[float], budget: float) -> list[Mix]:
    """Return the mixes within the budget that differ from a mix in one or two types.

    One device more, one less, and for each pair of types: one device less of the first and as many
    more of the second as the budget takes, or one more of the second and as many less of the first
    as that needs. ``costs`` are in $ per hour by type.
    """
    types = range(len(mix))
    spent = sum(n * cost for n, cost in zip(mix, costs, strict=True))
    changes = [{i: 1} for i in types] + [{i: -1} for i in types]
    for i in types:
        for j in types:
            if i == j:
                continue
            takes = int((budget - spent + costs[i]) / costs[j] + 1e-9)
            needs = math.ceil((spent + costs[j] - budget) / costs[i] - 1e-9)
            changes += [{i: -1, j: takes}, {i: -max(needs, 1), j: 1}]
    found = [tuple(n + change.get(i, 0) for i, n in enumerate(mix)) for change in changes]
    return [each for each in dict.fromkeys(found) if _within(each, costs, budget) and each != mix]


def _within(mix: Mix, costs: Sequence[float], budget: float) -> bool:
    spent = sum(n * cost for n, cost in zip(mix, costs, strict=True))
    return min(mix) >= 0 and any(mix) and spent <= budget + 1e-9


def climbed_one(data: Path, out: Path, model: str, policy: str) -> Climb:
    """Climb for one rule of one model: some minutes of one core."""
    file = case_file(out, model, TRACE)
    by_type = prices(file.cluster)
    costs = [by_type[name] for name in TYPES]

    def point_of(mix: Mix) -> Point:
        return Point(mix, balanced_threshold(file, mix) if policy == "threshold" else 0)

    def around(point: Point) -> list[Point]:
        sizes = [point.threshold + step for step in SIZE_STEPS] if point.threshold else []
        near = [replace(point, threshold=size) for size in sizes if 0 < size <= LARGEST]
        return near + [point_of(mix) for mix in neighbours(point.mix, costs, BUDGET)]

    def asked(point: Point, qps: float) -> CapacityRequest:
        search = Search(model, policy, policy, point.mix, SEED, start_qps=qps,
                        threshold=point.threshold)  # fmt: skip
        return asked_of(out, search)

    def carried(point: Point, qps: float) -> float:
        found = capacity(asked(point, qps)).best
        return found.qps if found else 0.0

    starts, first_qps = first_mixes(data, model, policy)
    summit = climb(
        [point_of(mix) for mix in starts], first_qps, around, carried,
        lambda point, qps: carries(asked(point, qps), qps),
    )  # fmt: skip
    return Climb(
        model=model, policy=policy, mix=summit.point.mix, threshold=summit.point.threshold,
        qps=round(summit.qps, 3), evaluated=summit.evaluated,
    )  # fmt: skip


def first_mixes(data: Path, model: str, policy: str) -> tuple[list[Mix], float]:
    """Return the mixes where a climb begins, best first, and the rate of the best in the data."""
    column = COLUMNS[policy]
    rows = [
        row for row in table(data / "sim_allowable_exhaustive.csv", PAPER) if row["model"] == model
    ]
    rows.sort(key=lambda row: -float(row[column]))
    mixes = [tuple(int(row[count]) for count in COUNTS) for row in rows[:STARTS]]
    return mixes, float(rows[0][column])


def climbed(data: Path, out: Path, models: Sequence[str], processes: int) -> Iterator[Climb]:
    """Yield the climb of every rule and model: kept ones first, then the others as they finish."""
    record = recorded_climbs(out)
    known = {(each.model, each.policy): each for each in record.read()}
    asked = [(model, policy) for model in models for policy in COLUMNS]
    yield from (known[each] for each in asked if each in known)
    left = [each for each in asked if each not in known]
    with ProcessPoolExecutor(processes) as pool:
        futures = [pool.submit(climbed_one, data, out, *each) for each in left]
        for future in as_completed(futures):
            found = future.result()
            record.append(found)
            yield found


def recorded_climbs(out: Path) -> RowFile[Climb]:
    """Return the file of the climbs that have ended."""
    return RowFile(out / "climbs.jsonl", Climb)


def searches_at(found: Sequence[Climb], seeds: int) -> list[Search]:
    """Return the capacities to search at the mixes found, seed by seed."""
    return [
        Search(each.model, each.policy, each.policy, each.mix, seed, start_qps=each.qps,
               threshold=each.threshold)
        for seed in range(seeds)
        for each in found
    ]  # fmt: skip

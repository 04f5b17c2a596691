"""Play sessions that come and go over the modelled benchmark: goodput and cost of each method.

    python -m benchmarks.papers.compass_online DATA_DIR OUT_DIR [--seeds N] [--page PAGE]

Sixty minutes of Poisson arrivals of one application (SR, VT, LVC) on the papers' medium cluster.
A session is planned for a limited number of modelled seconds, waits for devices up to
``PATIENCE_S``, and is served for an exponential time with the papers' mean. Planning time has two
variants: as modelled, and as in the papers. The second multiplies all modelled seconds by one
factor, with which `vulcan-like` takes the papers' mean time to its first plan.

*Goodput* counts the sessions served by a plan that truly meets their objectives. Load 1 is the rate
at which the plans of all truly compliant configurations just fill the cluster. *Cost* is the $ per
hour of the GPUs of the sessions' cheapest plans, without a limit on their number, for the sessions
that both the method and `compass` can plan. One scheduler, the paper's greedy, assigns devices for
every method. All figures are modelled. Rows are kept in OUT_DIR/online.jsonl, and hours that it has
are not played again.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import product
from pathlib import Path

import numpy as np

from benchmarks.commit import commit
from benchmarks.papers.compass import CLUSTERS
from benchmarks.papers.compass_compare import HISTORY
from benchmarks.papers.compass_model import EDGE, Application, applications, draw
from benchmarks.papers.compass_online_page import ORACLE, OURS, page
from benchmarks.papers.compass_plans import Planned
from benchmarks.papers.compass_searches import RIVALS, Searches, slowed
from benchmarks.papers.sources import DataError
from benchmarks.row_file import RowFile, RowFileError
from control.policies.compass.packing import QUARTERS
from control.policies.compass.schedule.greedy import cheapest_pairs, first_fit, greedy_pairs
from control.policies.compass.schedule.instance import (
    GOODPUT,
    Bin,
    Candidate,
    Instance,
    PlanItem,
    PlanOption,
    Tier,
)
from control.policies.compass.schedule.scheduling import opened_gpus, schedule

PAGE = Path("docs/results/compass-online.md")
LIVES_S: Mapping[str, float] = {"SR": 13.8, "VT": 37.6, "LVC": 67.2}  # Compass, Table 6
VULCANS_S: Mapping[str, float] = {"SR": 20.1, "VT": 24.2, "LVC": 30.9}  # to a plan, same table
SECONDS = 3600.0
TICK_S = 2.0  # arrivals and departures of so long are scheduled at once
PATIENCE_S = 20.0
REPLAN_S = 10.0  # between two schedules of all sessions, as live
KEPT = 1000.0  # weight of a running session, so that none ends for waiting ones
SAMPLED_S = 20.0  # between two looks at the cost
FIRST_SEED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One hour of one method.

    ``planned``, ``served`` and ``complying`` are shares of the sessions; ``goodput`` is complying
    sessions per minute. The costs are of the sessions that both the method and `compass` can plan,
    the share ``common`` of all: by the method, by `compass`, and by the cheapest true plans.
    ``pace`` is the seconds per modelled second of planning.
    """

    app: str
    pace: float
    method: str
    seed: int
    load: float
    commit: str
    sessions: int
    planned: float
    served: float
    complying: float
    goodput: float
    usd_per_h: float
    ours_usd_per_h: float
    least_usd_per_h: float
    common: float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A session: its arrival, its number among the drawn queries, and its serving time."""

    at_s: float
    query: int
    life_s: float


# ---------------------------------------------------------------------- the cluster


class Gpus:
    """The GPUs of the tiers: free quarters of each, and the pool of batched stages that uses it."""

    def __init__(self, counts: Mapping[str, int], prices: Mapping[str, float]) -> None:
        self._prices = prices
        self._free = {tier: [QUARTERS] * count for tier, count in counts.items()}
        self._pool = {tier: [""] * count for tier, count in counts.items()}

    def instance(self, sessions: Sequence[Candidate]) -> Instance:
        """Return the scheduling instance of sessions on what is free."""
        partly: dict[Bin, list[int]] = {}
        for tier, free in self._free.items():
            for left, pool in zip(free, self._pool[tier], strict=True):
                if 0 < left < QUARTERS:
                    partly.setdefault((tier, pool), [0, 0, 0])[left - 1] += 1
        empty = {tier: free.count(QUARTERS) for tier, free in self._free.items()}
        return Instance(
            tiers={tier: Tier(count, self._prices[tier]) for tier, count in empty.items()},
            sessions=tuple(sessions),
            free={bin: (n[0], n[1], n[2]) for bin, n in partly.items()},
        )

    def emptied(self) -> "Gpus":
        """Return the same GPUs, all of them free."""
        return Gpus({tier: len(free) for tier, free in self._free.items()}, self._prices)

    def take(self, item: PlanItem) -> int:
        """Take the fullest GPU on which an item fits; return its number."""
        free, pools = self._free[item.tier], self._pool[item.tier]
        fitting = [
            (left, number)
            for number, left in enumerate(free)
            if left >= item.quarters and (left == QUARTERS or pools[number] == item.pool)
        ]
        _, number = min(fitting)  # the schedule has packed the items exactly
        free[number] -= item.quarters
        pools[number] = item.pool
        return number

    def used(self) -> dict[str, float]:
        """Return the share of each tier's GPUs that is taken."""
        return {
            tier: 1 - sum(free) / (QUARTERS * len(free))
            for tier, free in self._free.items()
            if free
        }

    def give_back(self, item: PlanItem, number: int) -> None:
        """Free what an item took."""
        self._free[item.tier][number] += item.quarters


def by_greedy(instance: Instance) -> tuple[int | None, ...]:
    """Return each session's plan by the paper's greedy; None: it does not fit."""
    return first_fit(instance, greedy_pairs(instance, GOODPUT))


def by_first_come(instance: Instance) -> tuple[int | None, ...]:
    """Return the cheapest plan of each session in the order of arrival; None: it does not fit."""
    return first_fit(instance, cheapest_pairs(instance, GOODPUT))


Assign = Callable[[Instance], tuple[int | None, ...]]


class Hour:
    """The sessions of an hour under one method; ``chosen`` is by session the plan that serves."""

    def __init__(
        self,
        arrivals: Sequence[Arrival],
        known: Sequence[Planned],
        gpus: Gpus,
        assign: Assign = by_greedy,
    ) -> None:
        self._arrivals, self._known, self._gpus, self._assign = arrivals, known, gpus, assign
        self._looks: list[dict[str, float]] = []
        self._waiting: list[int] = []
        self._ends: list[tuple[float, int, tuple[tuple[PlanItem, int], ...]]] = []
        self.chosen: dict[int, int] = {}

    def play(self) -> None:
        """Play the hour."""
        ready = sorted(
            (each.at_s + self._known[each.query].seconds, number)
            for number, each in enumerate(self._arrivals)
            if self._known[each.query].plans
        )
        at = 0
        for now in np.arange(0.0, SECONDS, TICK_S).tolist():
            changed = self._departed(now)
            while at < len(ready) and ready[at][0] <= now:
                self._waiting.append(ready[at][1])
                at, changed = at + 1, True
            self._waiting = [n for n in self._waiting if now < self._given_up_s(n)]
            if changed and self._waiting:
                self._schedule(now)
            self._looks.append(self._look())

    @property
    def occupancy(self) -> dict[str, float]:
        """Return the mean shares over the hour: of each tier's GPUs that are taken, and of the
        running sessions that use their edge device."""
        return {
            tier: float(np.mean([each[tier] for each in self._looks])) for tier in self._looks[0]
        }

    def _look(self) -> dict[str, float]:
        running = [number for _, number, _ in self._ends]
        known = [self._known[self._arrivals[number].query] for number in running]
        at_edge = sum(each.at_edge[self.chosen[n]] for n, each in zip(running, known, strict=True))
        return {**self._gpus.used(), EDGE: at_edge / max(len(running), 1)}

    def _given_up_s(self, number: int) -> float:
        arrival = self._arrivals[number]
        return arrival.at_s + self._known[arrival.query].seconds + PATIENCE_S

    def _departed(self, now: float) -> bool:
        changed = False
        while self._ends and self._ends[0][0] <= now:
            for item, gpu in heappop(self._ends)[2]:
                self._gpus.give_back(item, gpu)
            changed = True
        return changed

    def _schedule(self, now: float) -> None:
        sessions = [Candidate(n, 1.0, self._plans(n)) for n in self._waiting]
        made = self._assign(self._gpus.instance(sessions))
        served = {n: at for n, at in zip(self._waiting, made, strict=True) if at is not None}
        self._take(served, {n: self._end_s(n, now) for n in served})

    def _plans(self, number: int) -> tuple[PlanOption, ...]:
        return self._known[self._arrivals[number].query].plans

    def _end_s(self, number: int, now: float) -> float:
        return now + self._arrivals[number].life_s

    def _take(self, served: Mapping[int, int], ends_s: Mapping[int, float]) -> None:
        """Serve sessions by plans, which take GPUs until they end."""
        items = [(item, n) for n, at in served.items() for item in self._plans(n)[at].items]
        taken: dict[int, list[tuple[PlanItem, int]]] = {n: [] for n in served}
        # The largest first: so the exact packing is reached.
        for item, n in sorted(items, key=lambda each: -each[0].quarters):
            taken[n].append((item, self._gpus.take(item)))
        for n in served:
            heappush(self._ends, (ends_s[n], n, tuple(taken[n])))
        self.chosen |= served
        self._waiting = [n for n in self._waiting if n not in served]


class RepackedHour(Hour):
    """An hour in which running sessions move to other GPUs of their tiers at no cost, so that free
    quarters are never scattered."""

    def _schedule(self, now: float) -> None:
        ends_s = {n: end_s for end_s, n, _ in self._ends}
        self._gpus, self._ends = self._gpus.emptied(), []
        self._take({n: self.chosen[n] for n in ends_s}, ends_s)
        super()._schedule(now)


class ReplannedHour(Hour):
    """An hour in which running sessions change their plans at no cost, every ``REPLAN_S``, in the
    schedule of the waiting ones (linear program over classes); none of them ends early."""

    def _schedule(self, now: float) -> None:
        if now % REPLAN_S == 0.0 and self._moved(now):
            return
        super()._schedule(now)

    def _moved(self, now: float) -> bool:
        """Schedule all sessions anew; return False if a running one would not be served."""
        ends_s = {n: end_s for end_s, n, _ in self._ends}
        numbers = [*ends_s, *self._waiting]
        sessions = [Candidate(n, KEPT if n in ends_s else 1.0, self._plans(n)) for n in numbers]
        empty = self._gpus.emptied()
        made = schedule(empty.instance(sessions), GOODPUT)
        served = {n: at for n, at in zip(numbers, made.plans, strict=True) if at is not None}
        if not served.keys() >= ends_s.keys():
            return False
        self._gpus, self._ends = empty, []
        self._take(served, {n: ends_s.get(n, self._end_s(n, now)) for n in served})
        return True


# ---------------------------------------------------------------------- load and cost


def fitting(known: Sequence[Planned], gpus: Mapping[str, int], prices: Mapping[str, float]) -> int:
    """Return how many sessions, drawn in turn, fit the cluster at once by true plans."""
    plans = [each.plans for each in known if each.plans]

    def fits(count: int) -> bool:
        turn = [Candidate(n, 1.0, plans[n % len(plans)]) for n in range(count)]
        return None not in by_greedy(Gpus(gpus, prices).instance(turn))

    low, high = 0, 1
    while fits(high) and high < 4096:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(low, 1)


def arrivals(rate: float, life_s: float, queries: int, seed: int) -> list[Arrival]:
    """Return an hour of Poisson arrivals, each one of the drawn queries."""
    rng = np.random.default_rng([seed, 11])
    count = int(rng.poisson(rate * SECONDS))
    times = np.sort(rng.uniform(0.0, SECONDS, count)).tolist()
    picks = rng.integers(queries, size=count).tolist()
    lives = rng.exponential(life_s, count).tolist()
    return [Arrival(*each) for each in zip(times, picks, lives, strict=True)]


def mean_cost(
    coming: Sequence[Arrival], known: Sequence[Planned], prices: Mapping[str, float]
) -> float:
    """Return the mean $ an hour of the GPUs that hold the cheapest plans of the sessions."""
    spans = [
        (each.at_s + known[each.query].seconds, each.life_s, known[each.query].plans[0])
        for each in coming
    ]
    tiers = {tier: Tier(None, price) for tier, price in prices.items()}
    found = []
    for now in np.arange(SAMPLED_S, SECONDS, SAMPLED_S).tolist():
        active = [plan for from_s, life_s, plan in spans if from_s <= now < from_s + life_s]
        found.append(_usd(tiers, active))
    return float(np.mean(found))


def _usd(tiers: Mapping[str, Tier], plans: Sequence[PlanOption]) -> float:
    sessions = tuple(Candidate(n, 1.0, (plan,)) for n, plan in enumerate(plans))
    used = opened_gpus(Instance(tiers=tiers, sessions=sessions), [0] * len(plans))
    return sum(tiers[tier].price * count for tier, count in used.items())


# ---------------------------------------------------------------------- methods


def methods(searches: Searches, pace: float) -> Iterator[tuple[str, list[Planned]]]:
    """Yield every method with what it knows of each query.

    A modelled second of planning takes ``pace`` seconds.
    """
    yield ORACLE, searches.truth
    yield OURS, slowed(searches.compass(5.0 / pace), pace)
    for name in RIVALS:
        for limit_s in (5.0, 15.0):
            found = searches.baseline(name, limit_s / pace)
            yield f"{name}, {limit_s:g} s", slowed((shared for shared, _ in found), pace)
        yield f"{name}, {limit_s:g} s, whole GPUs", slowed((whole for _, whole in found), pace)


def papers_pace(app: Application, searches: Searches) -> float:
    """Return the papers' seconds of `vulcan-like` to its first plan over the modelled ones."""
    return VULCANS_S[app.name] / searches.first_plan_s


def played(
    app: Application, seed: int, queries: int, load: float, *, code: str
) -> Iterator[Played]:
    """Play an hour of an application under every method, by both paces. ``code`` is the commit."""
    searches = Searches(draw(app, HISTORY + queries, seed))
    for pace in (1.0, papers_pace(app, searches)):
        yield from _played(app, searches, pace, seed, load, code=code)


def _played(
    app: Application, searches: Searches, pace: float, seed: int, load: float, *, code: str
) -> Iterator[Played]:
    known, queries = dict(methods(searches, pace)), len(searches.queries)
    counts = CLUSTERS["medium"]
    prices = {tier: app.model["tiers"][tier]["usd_per_gpu_h"] for tier in counts}
    life_s = LIVES_S[app.name]
    rate = load * fitting(known[ORACLE], counts, prices) / life_s
    coming = arrivals(rate, life_s, queries, seed)
    ours = known[OURS]
    for method, plans in known.items():
        common = [each for each in coming if ours[each.query].plans and plans[each.query].plans]
        hour = Hour(coming, plans, Gpus(counts, prices))
        hour.play()
        good = sum(plans[coming[n].query].complies[at] for n, at in hour.chosen.items())
        with_plan = Counter(bool(plans[each.query].plans) for each in coming)
        yield Played(
            app=app.name, pace=pace, method=method, seed=seed, load=load, commit=code,
            sessions=len(coming), planned=with_plan[True] / len(coming),
            served=len(hour.chosen) / len(coming), complying=good / len(coming),
            goodput=good / (SECONDS / 60),
            usd_per_h=mean_cost(common, plans, prices),
            ours_usd_per_h=mean_cost(common, ours, prices),
            least_usd_per_h=mean_cost(common, known[ORACLE], prices),
            common=len(common) / len(coming),
        )  # fmt: skip


def remaining(
    rows: Sequence[Played], seeds: Sequence[int], loads: Sequence[float], apps: Sequence[str]
) -> list[tuple[int, float, str]]:
    """Return the seed, load and application of the hours that no row has, seed by seed."""
    known = {(row.seed, row.load, row.app) for row in rows}
    return [hour for hour in product(seeds, loads, apps) if hour not in known]


def _play(options: argparse.Namespace, rows: RowFile[Played]) -> None:
    apps, code = applications(options.data), commit()
    options.out.mkdir(parents=True, exist_ok=True)
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    loads = [float(load) for load in options.loads.split(",")]
    for seed, load, name in remaining(rows.read(), seeds, loads, options.apps.split(",")):
        hour = list(played(apps[name], seed, options.queries, load, code=code))
        for row in hour:  # a part of an hour is not kept
            rows.append(row)
        print(f"played: {name}, load {load:g}, seed {seed}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the hours that OUT_DIR lacks, and write the page of all that it has."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--apps", default=",".join(LIVES_S), help="of SR,VT,LVC (all)")
    parser.add_argument("--loads", default="1", help="as in 0.5,1 (1)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--queries", type=int, default=12, help="that are drawn anew (12)")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--again", action="store_true", help="only write the page again")
    options = parser.parse_args(arguments)
    rows = RowFile(options.out / "online.jsonl", Played)
    try:
        if not options.again:
            _play(options, rows)
        if not (found := rows.read()):
            raise DataError(f"{options.out} has no hour that was played; leave out --again")
        options.page.write_text(page(found, options.queries), encoding="utf-8")
        print(options.page)
    except (DataError, RowFileError, OSError) as error:
        sys.exit(f"benchmarks.papers.compass_online: {error}")


if __name__ == "__main__":
    main()

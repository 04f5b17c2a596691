"""Problems for planners, drawn or written by hand, and their optimal plans by enumeration."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import linprog

from control.policies import POLICIES
from control.problem.problem import Problem
from profiles.measurements import Entry, FanOut, Latency
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Task, Variant

PAPER = POLICIES["loki-paper"].usual


def an_entry(
    task: str, variant: str, ms: Mapping[int, float], accuracy: float = 1.0,
    children: Mapping[str, float] | None = None, device: str = "cpu", memory: int = 0,
) -> Entry:  # fmt: skip
    """Return a profile entry with equal quantiles; ``ms`` by batch."""
    return Entry(
        task=task, variant=variant, device=device, operator="module:Class", weights_sha256="",
        load_s=0.0, memory_bytes=memory, accuracy=accuracy,
        children={c: FanOut(mean, {1: 1.0}) for c, mean in (children or {}).items()},
        latency=tuple(
            Latency(batch=b, repeats=1, **{f"{q}_s": t / 1e3 for q in
                                           ("mean", "p50", "p90", "p95", "p99")})
            for b, t in sorted(ms.items())
        ),
    )  # fmt: skip


def a_problem(
    entries: Sequence[Entry], children: Mapping[str, Sequence[str]], *, demand: float = 10.0,
    devices: Sequence[str] = ("cpu",) * 4, slo_ms: float = 250.0, policy: Policy = PAPER,
    tasks: Mapping[str, Mapping[str, object]] | None = None,
    variants: Mapping[str, Sequence[str]] | None = None, **changes: object,
) -> Problem:  # fmt: skip
    """Return the problem of these entries; ``children`` of every task, root first."""
    names = {
        task: list((variants or {}).get(task, ()))
        or list(dict.fromkeys(e.variant for e in entries if e.task == task))
        for task in children
    }
    pipeline = {k: changes.pop(k) for k in ("comm_s", "compute_share", "branches") if k in changes}
    return Problem(
        pipeline=Pipeline(
            name="p", slo_s=slo_ms / 1e3, policies=(), policy=policy.name,
            tasks=tuple(
                Task(
                    name=task,
                    variants=tuple(
                        Variant(task=task, name=v, operator="module:Class", batch=1024)
                        for v in names[task]
                    ),
                    children=tuple(below),
                    **(tasks or {}).get(task, {}),
                )
                for task, below in children.items()
            ),
            **{"comm_s": 0.0, **pipeline},
        ),
        policy=policy, slo_s=slo_ms / 1e3, demand_qps=demand, devices=tuple(devices),
        profile=ProfileTable("p", tuple(entries)), **changes,
    )  # fmt: skip


SHAPES: tuple[Mapping[str, Sequence[str]], ...] = (
    {"a": ()},
    {"a": ("b",), "b": ()},
    {"a": ("b", "c"), "b": (), "c": ()},
    {"a": ("b",), "b": ("c",), "c": ()},
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Draw a problem small enough to enumerate: at most 5 variants, 2 batches each, 4 devices."""
    shape = draw(st.sampled_from(SHAPES))
    left = 5
    entries = []
    for task, children in shape.items():
        count = draw(st.sampled_from((2, 2, 2, 1))) if left > len(shape) - len(entries) else 1
        left -= count
        entries += [_drawn_entry(draw, task, at, children) for at in range(count)]
    untied = len(shape["a"]) > 1 and draw(st.booleans())
    bounded = untied and draw(st.booleans())
    return a_problem(
        entries,
        shape,
        demand=draw(st.integers(0, 80)) * 2.5,
        devices=("cpu",) * draw(st.sampled_from((4, 3, 2, 4, 1))),
        slo_ms=draw(st.sampled_from((240.0, 160.0, 100.0, 60.0, 320.0))),
        branches="untied" if untied else "tied",
        comm_s=draw(st.sampled_from((0.0, 0.004))),
        tasks={"b": {"share": (0.25, 0.75)}} if bounded else {},
    )


def _drawn_entry(draw: st.DrawFn, task: str, at: int, children: Sequence[str]) -> Entry:
    """Draw an entry; a task's second variant is usually slower and more accurate."""
    first = float(draw(st.integers(3, 15) if at == 0 else st.integers(8, 45)))
    more = draw(st.sampled_from((1.0, 1.4, 1.9)))
    batches = {1: first} if more == 1.0 else {1: first, 2: first * more}
    accuracy = draw(st.integers(50, 85) if at == 0 else st.integers(75, 100)) / 100
    items = {child: draw(st.sampled_from((1.0, 0.5, 2.0, 3.3, 0.0))) for child in children}
    return an_entry(task, f"v{at}", batches, accuracy, items)


# ---------------------------------------------------------------- by enumeration


@dataclass(frozen=True)
class Best:
    """The optimum: devices in hardware mode, else accuracy, else the largest served share."""

    mode: str
    devices: int | None
    accuracy: float | None
    served: float


Run = tuple[Entry, int, float, float]  # entry, batch, latency_s, items/s


def by_trying(problem: Problem) -> Best:
    """Return the optimum by enumeration, from the definitions: a share per way to answer a query.

    A way is an assignment of a variant to every task (tied), or to those of one path (untied).
    """
    assert problem.profile is not None
    every = list(problem.profile.entries)
    fewest = _fewest(problem, every)
    if fewest is not None:
        return Best("hardware", fewest, None, 1.0)
    there = len(problem.devices)
    full = [
        (runs, counts)
        for runs in _selections(every)
        for counts in _counts(len(runs), there)
        if sum(counts) == there  # one more replica never hurts
    ]
    shares = [_served(problem, runs, counts, bounded=True) for runs, counts in full]
    best = [
        _accuracy(problem, runs, counts)
        for (runs, counts), share in zip(full, shares, strict=True)
        if share >= 1 - 1e-7
    ]
    if best:
        return Best("accuracy", None, max(best), 1.0)
    return Best("best-effort", None, None, max(shares, default=0.0))


def _fewest(problem: Problem, every: Sequence[Entry]) -> int | None:
    """Return the fewest devices that serve all queries with the most accurate variants."""
    names = [task.name for task in problem.pipeline.tasks]
    top = {name: max(e.accuracy for e in every if e.task == name) for name in names}
    best_only = [e for e in every if e.accuracy == top[e.task]]
    able = [
        sum(counts)
        for runs in _selections(best_only)
        for counts in _counts(len(runs), len(problem.devices))
        if _served(problem, runs, counts, bounded=False) >= 1 - 1e-7
    ]
    return min(able, default=None)


def _selections(entries: Sequence[Entry]) -> Iterator[tuple[Run, ...]]:
    """Yield every choice of at most one batch for each variant."""
    options = [
        [None, *((e, row.batch, row.p50_s, row.batch / row.p50_s) for row in e.latency)]
        for e in entries
    ]
    for each in product(*options):
        yield tuple(run for run in each if run is not None)


def _counts(kinds: int, devices: int) -> Iterator[tuple[int, ...]]:
    for counts in product(range(1, devices + 1), repeat=kinds):
        if sum(counts) <= devices:
            yield counts


def _ways(problem: Problem, runs: Sequence[Run]) -> list[dict[str, Run]]:
    tasks = problem.pipeline.tasks
    by_task = {t.name: [r for r in runs if r[0].task == t.name] for t in tasks}
    if problem.pipeline.branches == "tied":
        groups = [[t.name for t in tasks]]
    else:
        groups = [list(path) for path in _paths(problem)]
    ways = []
    for group in groups:
        for chosen in product(*(by_task[name] for name in group)):
            way = dict(zip(group, chosen, strict=True))
            if all(
                _fits(problem, [way[n] for n in p]) for p in _paths(problem) if set(p) <= way.keys()
            ):
                ways.append(way)
    return ways


def _paths(problem: Problem) -> list[tuple[str, ...]]:
    def down(name: str) -> Iterator[tuple[str, ...]]:
        children = problem.pipeline.task(name).children
        if not children:
            yield (name,)
        for child in children:
            for rest in down(child):
                yield (name, *rest)

    return list(down(problem.pipeline.root.name))


def _fits(problem: Problem, runs: Sequence[Run]) -> bool:
    pipeline = problem.pipeline
    budget = pipeline.compute_share * (problem.slo_s - (len(runs) + 1) * pipeline.comm_s)
    return sum(latency for *_, latency, _ in runs) <= budget + 1e-9


def _rows(
    problem: Problem, runs: Sequence[Run], counts: Sequence[int], ways: list[dict[str, Run]],
    bounded: bool,
) -> tuple[list[list[float]], list[float]]:  # fmt: skip
    """Return the capacities of variants and the bounds of tasks as A x <= b over the shares."""
    parent = {c: t.name for t in problem.pipeline.tasks for c in t.children}
    rows, limits = [], []
    for run, count in zip(runs, counts, strict=True):
        row = []
        for way in ways:
            items = 0.0
            if way.get(run[0].task) == run:
                items, name = problem.demand_qps, run[0].task
                while name in parent:
                    items *= way[parent[name]][0].children[name].mean
                    name = parent[name]
            row.append(items / run[3])
        rows.append(row)
        limits.append(float(count))
    for task in problem.pipeline.tasks if bounded else ():
        least, most = task.share
        inside = [1.0 if task.name in way else 0.0 for way in ways]
        rows += [[least - each for each in inside], [each - most for each in inside]]
        limits += [0.0, 0.0]
    return rows, limits


def _served(problem: Problem, runs: Sequence[Run], counts: Sequence[int], bounded: bool) -> float:
    ways = _ways(problem, runs)
    if not ways:
        return 0.0
    rows, limits = _rows(problem, runs, counts, ways, bounded)
    rows.append([1.0] * len(ways))
    limits.append(1.0)
    found = linprog(-np.ones(len(ways)), A_ub=rows, b_ub=limits, bounds=(0, 1))
    return -float(found.fun)


def _accuracy(problem: Problem, runs: Sequence[Run], counts: Sequence[int]) -> float:
    ways = _ways(problem, runs)
    rows, limits = _rows(problem, runs, counts, ways, bounded=True)
    paths = _paths(problem)
    worth = []
    for way in ways:
        own = [p for p in paths if set(p) <= way.keys()]
        worth.append(sum(float(np.prod([way[n][0].accuracy for n in p])) for p in own) / len(own))
    found = linprog(
        -np.array(worth), A_ub=rows, b_ub=limits, A_eq=[[1.0] * len(ways)], b_eq=[1.0],
        bounds=(0, 1),
    )  # fmt: skip
    return -float(found.fun) if found.status == 0 else 0.0

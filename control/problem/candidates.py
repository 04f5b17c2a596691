"""Candidate configurations: variants on kinds of devices, feasible batches, and latency budgets.

A *unit* is a variant on one kind of device, a *configuration* of it one of its batches, with

    l(u, b)    seconds that a batch of b takes          (profile, the policy's ``latency``)
    q(u, b)    items per second of one device = b / t   (profile, the policy's ``rate``)

and the compute budget of a path to leaf task z is

    L(z) = compute share x (SLO - (tasks on the path + 1) x comm)

(Loki, section 4.1: half of the SLO is left for queues; comm is the latency of one hop.)
Configurations that no optimum needs are left out to keep models small.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from control.problem.problem import PlanError, Problem, Unprofiled
from profiles.measurements import Entry, ProfileError
from schemas.pipeline import Task, Variant
from schemas.variant_id import variant_id, variant_key

# Latencies are sums of floats; a nanosecond is within rounding.
FITS_S = 1e-9
# Largest number of latency sums to enumerate when leaving out configurations; beyond it, all
# configurations are kept.
MOST_SUMS = 20_000


@dataclass(frozen=True, slots=True)
class Config:
    """One batch size: seconds a batch takes, items per second of one device."""

    batch: int
    latency_s: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A variant on one kind of device. ``configs`` grow in latency and in rate."""

    task: str
    variant: str
    device: str  # the kind's name
    accuracy: float
    items: Mapping[str, float]  # child -> items that one item makes for it
    configs: tuple[Config, ...]

    @property
    def key(self) -> str:
        """The variant's name in plans and reports: "task/variant"."""
        return variant_key(self.task, self.variant)

    @property
    def key_on_device(self) -> tuple[str, str, str]:
        """Task, variant and kind of device, which identify the unit."""
        return self.task, self.variant, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All candidates; ``tasks`` and the units of each task are in the order of the pipeline."""

    tasks: tuple[Task, ...]
    tied: bool
    devices: Mapping[str, int]  # kind -> how many
    names: Mapping[str, tuple[str, ...]]  # kind -> the different devices of it
    units: Mapping[str, tuple[Unit, ...]]
    budget_s: Mapping[str, float]  # leaf task -> compute budget of the path to it
    weight: Mapping[str, float]  # leaf task -> weight of its accuracy; they sum to 1
    path_accuracy: Mapping[tuple[str, ...], float]

    def task(self, name: str) -> Task:
        """Return the task of that name."""
        return next(task for task in self.tasks if task.name == name)

    @property
    def all_units(self) -> tuple[Unit, ...]:
        """The units of all tasks."""
        return tuple(unit for task in self.tasks for unit in self.units[task.name])

    def accuracy(self, path: Sequence[Unit]) -> float:
        """Return the accuracy of a path from the root to a leaf: measured, else the product."""
        measured = self.path_accuracy.get(tuple(unit.key for unit in path))
        if measured is not None:
            return measured
        so_far = 1.0
        for unit in path:
            so_far *= unit.accuracy
        return so_far


def choices(problem: Problem) -> Choices:
    """Return a problem's candidates; raise ``PlanError`` for a task that no variant can serve."""
    kinds = device_kinds(problem)
    pipeline = problem.pipeline
    leaves = [task for task in pipeline.tasks if not task.children]
    total = sum(task.weight for task in leaves)
    return Choices(
        tasks=pipeline.tasks,
        tied=pipeline.branches == "tied",
        devices={kind: len(names) for kind, names in kinds.items()},
        names={kind: tuple(dict.fromkeys(names)) for kind, names in kinds.items()},
        units={task.name: _units(problem, task, kinds) for task in pipeline.tasks},
        budget_s=budgets_s(problem),
        weight={task.name: task.weight / total for task in leaves},
        path_accuracy=problem.path_accuracy,
    )


def device_kinds(problem: Problem) -> dict[str, tuple[str, ...]]:
    """Return the devices by kind: those of one kind have the same profile and memory."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for device in problem.devices:
        alike.setdefault(_nature(problem, device), []).append(device)
    kinds: dict[str, tuple[str, ...]] = {}
    for names in alike.values():
        short = names[0].partition(":")[0]
        kinds[names[0] if short in kinds else short] = tuple(names)
    return kinds


def budgets_s(problem: Problem) -> dict[str, float]:
    """Return the compute budget of the path to each leaf task, s; may be < 0."""
    pipeline = problem.pipeline
    depth = {pipeline.root.name: 1}
    for task in pipeline.tasks:
        depth.update(dict.fromkeys(task.children, depth[task.name] + 1))
    return {
        task.name: pipeline.compute_share
        * (problem.slo_s - (depth[task.name] + 1) * pipeline.comm_s)
        for task in pipeline.tasks
        if not task.children
    }


def most_accurate(every: Choices) -> Choices:
    """Keep only the variants of highest accuracy of each task (Loki, equations 8 to 10).

    A variant is kept on every kind of device that it was measured on, even if its accuracy is
    rounded differently there.
    """
    best = {name: max(u.accuracy for u in units) for name, units in every.units.items()}
    top = {unit.key for unit in every.all_units if unit.accuracy == best[unit.task]}
    return replace(
        every,
        units={
            name: tuple(unit for unit in units if unit.key in top)
            for name, units in every.units.items()
        },
    )


def needed(every: Choices) -> Choices:
    """Leave out configurations that fit no path, or that a faster one can always replace.

    With growing latencies, b is redundant if the next larger batch fits wherever b fits. This is
    exact: any solution with b may use the larger batch instead.
    """
    while True:
        left = {task.name: tuple(_contexts(every, task.name)) for task in every.tasks}
        fewer = replace(
            every,
            units={
                name: tuple(
                    replace(unit, configs=kept)
                    for unit in units
                    if (kept := _useful(unit, left[name], tied=every.tied))
                )
                for name, units in every.units.items()
            },
        )
        if fewer == every:
            return every
        every = fewer


def paths(tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """Return the tasks on the way to each leaf task, the root first."""
    way: dict[str, tuple[str, ...]] = {tasks[0].name: (tasks[0].name,)}
    for task in tasks:
        way.update({child: (*way[task.name], child) for child in task.children})
    return {task.name: way[task.name] for task in tasks if not task.children}


def _nature(problem: Problem, device: str) -> tuple[object, ...]:
    entries = (
        id(entry) if (entry := _entry(problem, variant, device)) else None
        for task in problem.pipeline.tasks
        for variant in task.variants
    )
    return (*entries, problem.memory.get(device))


def _entry(problem: Problem, variant: Variant, device: str) -> Entry | None:
    if problem.profile is None:
        return None
    try:
        return problem.profile.entry(variant.task, variant.name, device)
    except ProfileError:
        return None


def _units(problem: Problem, task: Task, kinds: Mapping[str, tuple[str, ...]]) -> tuple[Unit, ...]:
    entries = [
        (variant, kind, names[0], entry)
        for variant in task.variants
        for kind, names in kinds.items()
        if (entry := _entry(problem, variant, names[0]))
    ]
    if kinds and not entries:
        raise Unprofiled(
            f"task {task.name!r} has no profiled variant on {', '.join(kinds)}; "
            "run `headrace profile` or name its profile under profiles"
        )
    fitting = [row for row in entries if _fits_memory(problem, row[2], row[3])]
    if entries and not fitting:
        least = min(entry.memory_bytes for *_, entry in entries)
        raise PlanError(
            f"no variant of task {task.name!r} fits the memory of a device; the smallest takes "
            f"{least / 1e6:.0f} MB: add a smaller variant or raise cluster.memory"
        )
    return tuple(_unit(problem, task, v, kind, name, e) for v, kind, name, e in fitting)


def lacks_memory(problem: Problem, key: str, device: str) -> tuple[int, int] | None:
    """Return a variant's bytes and the fewer bytes that a device's worker may use.

    Return None if the variant fits or was not profiled there.
    """
    task, variant = variant_id(key)
    try:
        entry = problem.profile.entry(task, variant, device) if problem.profile else None
    except ProfileError:
        return None
    if entry is None or _fits_memory(problem, device, entry):
        return None
    return entry.memory_bytes, problem.memory[device]


def _fits_memory(problem: Problem, device: str, entry: Entry) -> bool:
    return entry.memory_bytes <= problem.memory.get(device, entry.memory_bytes)


def _unit(
    problem: Problem, task: Task, variant: Variant, kind: str, device: str, entry: Entry
) -> Unit:
    return Unit(
        task=task.name,
        variant=variant.name,
        device=kind,
        accuracy=entry.accuracy,
        items={child: items_made(problem, variant, child, entry) for child in task.children},
        configs=_configs(problem, variant, device, entry),
    )


def items_made(problem: Problem, variant: Variant, child: str, entry: Entry) -> float:
    """Return the items for a child that one item of the variant makes: observed, else profiled."""
    observed = problem.multiplicity.get((variant.key, child))
    if observed is not None:
        return observed
    if child not in entry.children:
        raise Unprofiled(
            f"the profile of {entry.name} has no fan-out to {child!r}; "
            "run `headrace profile` again or correct the profile"
        )
    return entry.children[child].mean


def _configs(problem: Problem, variant: Variant, device: str, entry: Entry) -> tuple[Config, ...]:
    """Return the profiled batches up to the largest allowed one that gain in rate."""
    assert problem.profile is not None
    most = problem.batch(variant)
    batches = [row.batch for row in entry.latency if row.batch <= most] or [most]
    measured = []
    for batch in batches:
        latency_s, seconds = (
            problem.profile.latency_s(variant.task, variant.name, device, batch, quantile)
            for quantile in (problem.policy.latency, problem.policy.rate)
        )
        measured.append(Config(batch, latency_s, batch / seconds))
    measured.sort(key=lambda each: (each.latency_s, -each.rate))
    kept: list[Config] = []
    for config in measured:
        if not kept or config.rate > kept[-1].rate:
            kept.append(config)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class _Left:
    """The seconds that the other tasks of a path may leave, ascending; or only the most."""

    seconds: np.ndarray[tuple[int], np.dtype[np.float64]]
    complete: bool

    def fits(self, config: Config) -> bool:
        """Return whether a configuration fits beside the fastest others."""
        return bool(config.latency_s <= self.seconds[-1] + FITS_S)

    def fits_alone(self, config: Config, slower: Config | None) -> bool:
        """Return whether others leave room for a configuration but not for the next slower one."""
        at = int(np.searchsorted(self.seconds, config.latency_s - FITS_S))
        if not self.complete or at == len(self.seconds):
            return not self.complete
        return slower is None or bool(self.seconds[at] < slower.latency_s - FITS_S)


def _contexts(every: Choices, task: str) -> Iterator[_Left]:
    """Yield, per leaf whose path has the task, the seconds that the path's other tasks leave."""
    for leaf, way in paths(every.tasks).items():
        if task not in way:
            continue
        left = np.array([every.budget_s[leaf]])
        complete = True
        for name in way:
            took = sorted({c.latency_s for unit in every.units[name] for c in unit.configs})
            if name == task:
                continue
            if complete and len(left) * len(took) > MOST_SUMS:
                left, complete = left[-1:], False
            left = np.unique(np.subtract.outer(left, np.array(took or [np.inf])))
            left = left if complete else left[-1:]
        yield _Left(left, complete)


def _useful(unit: Unit, left: Sequence[_Left], *, tied: bool) -> tuple[Config, ...]:
    slower = [*unit.configs[1:], None]
    return tuple(
        config
        for config, other in zip(unit.configs, slower, strict=True)
        if (all if tied else any)(each.fits(config) for each in left)
        and any(each.fits_alone(config, other) for each in left)
    )


__all__ = [
    "FITS_S", "Choices", "Config", "Unit", "budgets_s", "choices", "device_kinds", "items_made",
    "lacks_memory", "most_accurate", "needed", "paths",
]  # fmt: skip

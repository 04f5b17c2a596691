"""The complete input of a simulated run, and the queries and devices that follow from it.

A run starts empty, or under a plan already in force (``Start``).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from control.policies.kairos.query_sizes import SizeDistribution
from headrace.arrivals.arrival_processes import Arrivals, Recorded, Times
from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import cluster_workers
from headrace.errors import PipelineError
from headrace.simulation.faults import Fault
from profiles.profile_table import ProfileTable
from schemas.records import Plan, Query
from streams.simulated.delays import STAMP_S, DelayTrace
from streams.simulated.world import World


@dataclass(frozen=True, slots=True)
class Start:
    """A plan in force, and when planning begins, seconds after the start of the arrivals.

    Demand is counted by whole seconds of the clock; the arrivals begin ``phase_s`` into one.
    """

    plan: Plan
    plans_from_s: float
    phase_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The complete input of a run."""

    file: PipelineFile
    policy: str
    seed: int
    arrivals: Arrivals
    faults: tuple[Fault, ...] = ()
    random_faults: int = 0
    warm_up_s: float = 0.0
    latency: str = ""  # a quantile of the profile; "": drawn
    solve_s: float | None = None
    dilate: float = 1.0  # as in streams/live/dilation.py: delays and solves shrink by this factor
    world: World | None = None  # None: built-in delays, batches as the profile has them
    replay: DelayTrace | None = None  # of the run that is to be repeated; instead of a world
    start: Start | None = None  # None: the control app plans from the start
    phase_s: float | None = None  # of the clock's second at the first arrival; None: as it comes
    apart_s: float = 0.0  # processes start within this time, drawn; 0: together
    sizes: SizeDistribution | None = None  # of queries, if the arrivals have none
    classes: tuple[tuple[str, float], ...] = ()  # part by SLO class, at most 1
    hops: bool = True  # False: all delays of broker and machine are 0


def devices(file: PipelineFile) -> dict[str, str]:
    """Return the device of each worker by node name; names are those of a live run."""
    return {
        name: device
        for device, count in file.cluster.devices
        for role in cluster_workers(file.cluster, device, count)
        for name in role.nodes
    }


def start_times(run: Run, control: str, nodes: Sequence[str]) -> dict[str, float]:
    """Return when each node starts, in seconds; the workers of a process start together.

    Empty if all start at once. Ticks and reports repeat from the start of a process on, so live
    they are out of step.
    """
    if not run.apart_s:
        return {}
    cluster, rng = run.file.cluster, np.random.default_rng([run.seed, 10])
    hosts = {
        node: role.name
        for device, count in cluster.devices
        for role in cluster_workers(cluster, device, count)
        for node in role.nodes
    }
    drawn: dict[str, float] = {}
    for node in (control, *nodes):
        drawn.setdefault(hosts.get(node, node), float(rng.uniform(0.0, run.apart_s)))
    return {node: drawn[hosts.get(node, node)] for node in (control, *nodes)}


def real_workers(file: PipelineFile) -> dict[str, str]:
    """Return the device of each worker that runs models, by node name."""
    every = devices(file)
    return {name: device for name, device in every.items() if not file.cluster.emulated(device)}


def check_profiled(file: PipelineFile, profile: ProfileTable) -> None:
    """Raise ``PipelineError`` for a variant without measurements.

    One that runs on none of the profiled devices needs none: no policy plans with it.
    """
    known = {(entry.task, entry.variant) for entry in profile.entries}
    elsewhere = {name.partition(" on ")[0] for name in profile.left_out}
    for task in file.pipeline.tasks:
        for variant in task.variants:
            if (task.name, variant.name) not in known and variant.key not in elsewhere:
                raise PipelineError(
                    f"{file.path}: {variant.key} has no profile to simulate it by; run "
                    f"`headrace profile {file.path.name}`"
                )


def queries(run: Run, count: int) -> list[Query]:
    """Return the queries in order of arrival; a single shared one if they are all alike."""
    made = _sized(run, count)
    if not run.classes or count == 0:
        return made
    names = [*(name for name, _ in run.classes), ""]
    parts = [part for _, part in run.classes]
    rng = np.random.default_rng([run.seed, 8])  # 7: of the world
    drawn = rng.choice(len(names), size=count, p=[*parts, max(0.0, 1.0 - sum(parts))])
    shared: dict[tuple[int, int], Query] = {
        (each.size, k): replace(each, slo_class=name)
        for each in {each.size: each for each in made}.values()
        for k, name in enumerate(names)
    }
    return [shared[made[at % len(made)].size, int(k)] for at, k in enumerate(drawn)]


def _sized(run: Run, count: int) -> list[Query]:
    """Return the queries without classes."""
    arrivals, sizes = run.arrivals, run.sizes
    rng = np.random.default_rng([run.seed, 6])
    if isinstance(arrivals, Recorded) and arrivals.sizes:
        recorded = arrivals.sizes
        # Queries added by bursts draw from the recorded sizes.
        extra = rng.choice(recorded, max(count - len(recorded), 0)).tolist()
        return [Query(payload=None, size=int(size)) for size in (*recorded, *extra)]
    if sizes is None or count == 0:
        return [Query(payload=None)]
    drawn = rng.choice(sizes.sizes, size=count, p=sizes.probabilities)
    return [Query(payload=None, size=int(size)) for size in drawn]


def stamped(run: Run, times: Times, first_s: float) -> Times:
    """Return the CreateTimes of arrivals: whole ms of wall time, rounded down.

    The CreateTime of a counted query is never before the count begins.
    """
    step_s = STAMP_S / run.dilate
    if not run.hops:
        return first_s + times
    # The clock's phase within a ms at the first arrival is random.
    ahead_s = np.random.default_rng([run.seed, 5]).uniform(0.0, step_s)
    early = first_s + np.floor((times + ahead_s) / step_s) * step_s - ahead_s
    begins = np.where(times < run.warm_up_s, first_s, first_s + run.warm_up_s)
    return np.maximum(early, begins)

"""Schedules of faults: drawn from a seed, written as JSON, and reduced while they fail."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from headrace.config.topology import dispatcher_name

WORKERS = ("w0", "w1", "w2", "w3")
CONTROLS = ("control-0", "control-1")
DATA = ("ingress-0", "egress-0", *WORKERS)
ROLES = (*DATA, *CONTROLS)
NONE = ("",)
POLICIES = ("static", "other", "loki")
TOPICS = ("queries", "work.locate", "work.read", "outputs", "results", "leases")
WAITING = ("waiting.read", "completions")  # topics of a schedule with dispatchers
DISPATCHED, HIT = 0.3, 0.5  # of the schedules have dispatchers; of their faults hit these
ROOTED = 0.2  # of the schedules have one task, which ingress dispatches
ROOT_POLICIES = ("kairos", "fcfs", "static")
ROOT_TOPICS = ("queries", "work.locate", "completions", "outputs", "results", "leases")

FIRST_S, LAST_S = 1.0, 7.0  # faults begin within this time
STEP_S = 4.0  # clocks are off by at most this; egress's recovery allows for 5 s


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledFault:
    """A fault: ``kind`` at ``at_s``, for ``for_s``, of ``amount`` (its meaning depends on the
    kind)."""

    kind: str
    target: str
    at_s: float
    for_s: float
    amount: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run, repeated exactly by its value. ``seed`` draws arrivals and latencies; ``dispatchers``
    send the items of the inner task (0: to its slots by turns). ``rooted``: there is one task, and
    ingress sends its queries under the policies ``ROOT_POLICIES`` that dispatch."""

    seed: int
    queries: int
    fan_out: int
    slo_s: float
    faults: tuple[ScheduledFault, ...]
    policy: str = "static"
    dispatchers: int = 0
    rooted: bool = False

    def to_json(self) -> str:
        """Return the schedule as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def from_json(text: str) -> Schedule:
    """Return the schedule that ``Schedule.to_json`` wrote."""
    row = json.loads(text)
    return Schedule(**{**row, "faults": tuple(ScheduledFault(**each) for each in row["faults"])})


@dataclass(frozen=True, slots=True)
class FaultKind:
    """The targets of a kind of fault, and the ranges of its duration (s) and amount."""

    targets: Sequence[str]
    for_s: tuple[float, float]
    amount: tuple[float, float] = (0.0, 0.0)


# kill: the role's next process starts after ``for_s``. late kill: what it had not sent arrives
# ``amount`` later. freeze, cut, deaf and mute (both directions, from the broker, to the broker)
# last for ``for_s``. replaced: cut off for ``for_s``; another process of its name starts ``amount``
# after the beginning. second: another process of a living name starts. slow: each hop takes
# ``amount`` more. replica: one of a topic freezes, so that what is written is neither read nor
# confirmed for ``for_s``. step: the wall clock is off by ``amount``. policy (its target), drain: a
# command.
KINDS: Mapping[str, FaultKind] = {
    "kill": FaultKind(ROLES, (0.05, 3.0)),
    "late kill": FaultKind(DATA, (0.05, 2.0), (0.1, 4.0)),
    "freeze": FaultKind(ROLES, (0.2, 9.0)),
    "frozen and replaced": FaultKind(ROLES, (2.0, 10.0), (0.5, 3.0)),
    "cut": FaultKind(ROLES, (0.2, 9.0)),
    "deaf": FaultKind(ROLES, (0.2, 9.0)),
    "mute": FaultKind(ROLES, (0.2, 9.0)),
    "cut and replaced": FaultKind(ROLES, (2.0, 10.0), (0.5, 3.0)),
    "second": FaultKind(DATA, (0.0, 0.0)),
    "slow": FaultKind(ROLES, (0.5, 5.0), (0.01, 0.5)),
    "replica": FaultKind(TOPICS, (0.2, 8.0)),
    "broker away": FaultKind(NONE, (0.2, 8.0)),
    "step": FaultKind(ROLES, (0.5, 8.0), (-STEP_S, STEP_S)),
    "policy": FaultKind(POLICIES, (0.0, 0.0)),
    "drain": FaultKind(WORKERS, (0.5, 3.0)),
}


def drawn(seed: int, index: int, kinds: Mapping[str, FaultKind] = KINDS) -> Schedule:
    """Return the schedule of this index."""
    rng = np.random.default_rng([seed, index])
    names = sorted(kinds)
    count = int(rng.integers(1, 7))
    faults = [_fault(names[int(rng.integers(len(names)))], kinds, rng) for _ in range(count)]
    found = Schedule(
        seed=int(rng.integers(2**31)),
        queries=int(rng.integers(20, 80)),
        fan_out=int(rng.integers(0, 4)),
        slo_s=float(rng.choice([0.3, 1.0, 4.0])),
        policy=str(rng.choice(["static", "static", "loki"])),
        faults=tuple(sorted(faults, key=lambda fault: (fault.at_s, fault.kind, fault.target))),
    )
    sort = rng.random()
    if sort < DISPATCHED:
        return _dispatched(found, rng)
    return _rooted(found, rng) if sort < DISPATCHED + ROOTED else found


def dispatchers_of(count: int) -> tuple[str, ...]:
    """Return the names of the inner task's dispatchers."""
    return tuple(dispatcher_name("read", number) for number in range(count))


def _dispatched(schedule: Schedule, rng: np.random.Generator) -> Schedule:
    """Give a schedule dispatchers, which some of its faults hit in place of other roles."""
    count = int(rng.integers(1, 3))
    instead = {ROLES: dispatchers_of(count), DATA: dispatchers_of(count), TOPICS: WAITING}
    return replace(schedule, dispatchers=count, faults=_retargeted(schedule.faults, instead, rng))


def _rooted(schedule: Schedule, rng: np.random.Generator) -> Schedule:
    """Give a schedule one task, with the policies and the topics of such a pipeline; some of its
    faults hit ingress in place of other roles."""
    there = {POLICIES: ROOT_POLICIES, TOPICS: ROOT_TOPICS}
    faults = _retargeted(schedule.faults, there, rng, share=1.0)
    faults = _retargeted(faults, dict.fromkeys((ROLES, DATA), ("ingress-0",)), rng)
    policy = str(rng.choice(ROOT_POLICIES, p=(0.6, 0.3, 0.1)))
    return replace(schedule, rooted=True, policy=policy, faults=faults)


def _retargeted(
    faults: Sequence[ScheduledFault], instead: Mapping[Sequence[str], Sequence[str]],
    rng: np.random.Generator, share: float = HIT,
) -> tuple[ScheduledFault, ...]:  # fmt: skip
    """Give a share of the faults whose kind has the targets in ``instead`` one of those there."""
    found = []
    for fault in faults:
        names = instead.get(tuple(KINDS[fault.kind].targets), ()) if fault.kind in KINDS else ()
        hit = bool(names) and rng.random() < share
        target = names[int(rng.integers(len(names)))] if hit else fault.target
        found.append(replace(fault, target=target))
    return tuple(found)


def _fault(name: str, kinds: Mapping[str, FaultKind], rng: np.random.Generator) -> ScheduledFault:
    kind = kinds[name]
    return ScheduledFault(
        kind=name,
        target=str(kind.targets[int(rng.integers(len(kind.targets)))]),
        at_s=round(float(rng.uniform(FIRST_S, LAST_S)), 3),
        for_s=round(float(rng.uniform(*kind.for_s)), 3),
        amount=round(float(rng.uniform(*kind.amount)), 3),
    )


def reduced(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a schedule that still fails, from which no fault and no half of the queries can be
    left out."""
    while (smaller := next(filter(fails, _smaller(schedule)), None)) is not None:
        schedule = smaller
    return schedule


def _smaller(schedule: Schedule) -> list[Schedule]:
    faults = schedule.faults
    without = [
        replace(schedule, faults=(*faults[:i], *faults[i + 1 :])) for i in range(len(faults))
    ]
    fewer = [replace(schedule, queries=schedule.queries // 2)] if schedule.queries > 1 else []
    return [*without, *fewer]

"""One schedule played in virtual time: processes, their supervisor, a producer, and faults."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from benchmarks.schedules.control_process import ControlGroup, ControlProcess
from benchmarks.schedules.data_process import DataProcess, NamesakeHeard
from benchmarks.schedules.fault_schedule import (
    CONTROLS,
    DATA,
    WORKERS,
    Schedule,
    ScheduledFault,
    dispatchers_of,
)
from benchmarks.schedules.faulty_broker import Agenda, Broker
from benchmarks.schedules.node_recovery import PARTITIONS
from benchmarks.schedules.schedule_invariants import Invariants
from benchmarks.schedules.simulated_process import Making, Process
from profiles.measurements import EMULATED, Entry, FanOut, Latency
from profiles.profile_table import ProfileTable
from schemas.codec.single_object import encode
from schemas.effects import COMMANDS, QUERIES
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Command, Query, Record
from streams.topics import physical

QUERIES_S = (1.2, 7.5)  # the producer writes within this time
SETTLE_S = 22.0  # after the last fault: leases, hand-overs, deadlines
RESTART_S = 0.3  # the supervisor's pause
LOAD_S = 0.05
ITEM_S = 0.004  # of a batch, and at most of each item in it


class Drawn:
    """A variant: latencies by chance, outputs by the input alone, so that repeated work repeats."""

    def __init__(self, rng: np.random.Generator, fan_out: int | None) -> None:
        self._rng, self._fan_out = rng, fan_out  # None: a leaf

    def latency_s(self, batch: int) -> float:
        return ITEM_S * (1.0 + float(self._rng.random(batch).sum()))

    def predict(self, values: list[str]) -> list[object]:
        return [self._output(value) for value in values]

    def _output(self, value: str) -> object:
        number = crc32(value.encode())
        if self._fan_out is None:
            return ValueError(f"cannot read {value}") if number % 23 == 0 else value
        return {"read": [f"{value}/{i}" for i in range(number % (self._fan_out + 1))]}


def pipeline_of(schedule: Schedule) -> Pipeline:
    """Return two stages with two variants and three policies, of which the second may have
    dispatchers; or one stage, for policies by which ingress dispatches."""

    def task(name: str, children: tuple[str, ...], dispatch: str = "") -> Task:
        variants = tuple(Variant(task=name, name=v, operator="m:C", batch=4) for v in "vw")
        return Task(name=name, variants=variants, children=children, slots=8, dispatch=dispatch)

    if schedule.rooted:
        tasks = (task("locate", ()),)
        policies = (
            Policy(name="static", replicas={"locate/v": 3}),
            Policy(name="kairos", kind="kairos"),
            Policy(name="fcfs", kind="fcfs"),
        )
    else:
        tasks = (
            task("locate", ("read",)),
            task("read", (), "kairos" if schedule.dispatchers else ""),
        )
        policies = (
            Policy(name="static", replicas={"locate/v": 1, "read/v": 3}),
            Policy(name="other", replicas={"locate/v": 2, "read/w": 2}),
            Policy(name="loki", kind="loki", interval_s=2.0),
        )
    return Pipeline(
        name="p",
        slo_s=schedule.slo_s,
        tasks=tasks,
        dispatchers=max(schedule.dispatchers, 1),
        policies=policies,
        policy=schedule.policy,
        input="avro",
        results="avro",
        grace_s=0.25,
        egress_partitions=2,
    )


def making_of(schedule: Schedule) -> Making:
    """Return the parts of which a schedule's roles are made."""

    def model(node: str, variant: str) -> Drawn:
        rng = np.random.default_rng([schedule.seed, crc32(f"{node} {variant}".encode())])
        leaf = schedule.rooted or not variant.startswith("locate")
        return Drawn(rng, None if leaf else schedule.fan_out)

    return Making(pipeline_of(schedule), model, LOAD_S, _profile(schedule))


def _profile(schedule: Schedule) -> ProfileTable:
    """Return the planners' profile: variant w is more accurate and slower than v."""
    children = {"read": FanOut(schedule.fan_out / 2, {schedule.fan_out: 1.0})}
    below = {"locate": {}} if schedule.rooted else {"locate": children, "read": {}}
    return ProfileTable("p", tuple(_entry(t, v, below[t]) for t in below for v in ("v", "w")))


def _entry(task: str, variant: str, children: Mapping[str, FanOut]) -> Entry:
    stretch, accuracy = (1.0, 0.8) if variant == "v" else (1.5, 0.9)
    latency = tuple(
        Latency(
            batch=batch, repeats=9,
            **dict.fromkeys(TIMES, stretch * ITEM_S * (1.0 + batch)),
        )
        for batch in (1, 2, 4)
    )  # fmt: skip
    return Entry(
        task=task, variant=variant, device=EMULATED, operator="m:C", weights_sha256="",
        load_s=LOAD_S, memory_bytes=1, accuracy=accuracy, children=children, latency=latency,
    )  # fmt: skip


TIMES = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a schedule."""

    queries: int
    outcomes: Mapping[str, int]
    restarts: int
    refused: int  # second instances that did not start
    went_back: int  # commits below an earlier life's
    steps: int


class World:
    """A schedule under way."""

    def __init__(self, schedule: Schedule, making: Making) -> None:
        self.schedule, self.making = schedule, making
        self.agenda = Agenda()
        self.invariants = Invariants(making.pipeline)
        self.broker = Broker(self.agenda, making.pipeline, self.invariants)
        self.group = ControlGroup(self.agenda, self.broker)
        self.running: dict[str, list[Process]] = {}
        self.down: set[str] = set()  # to be started again by a fault, not by the supervisor
        self.restarts = self.refused = self._lives = self._commands = 0
        for name in (*CONTROLS, *DATA, *dispatchers_of(schedule.dispatchers)):
            self.start(name)
        self._produce()
        for fault in schedule.faults:
            self.agenda.at(fault.at_s, lambda fault=fault: _BEGIN[fault.kind](self, fault))  # type: ignore[misc]

    def play(self) -> Played:
        """Run to the end; raise ``Violated``."""
        last_s = max((f.at_s + f.for_s + f.amount for f in self.schedule.faults), default=0.0)
        self.agenda.run(max(last_s, QUERIES_S[1]) + SETTLE_S + 2 * self.schedule.slo_s)
        self.invariants.ended(self.broker)
        answers = self.invariants.answered.values()
        return Played(
            len(answers), dict(Counter(a.outcome for a in answers)), self.restarts, self.refused,
            self.invariants.went_back, self.agenda.steps,
        )  # fmt: skip

    # ------------------------------------------------------------------ processes

    def start(self, name: str, off_s: float = 0.0) -> None:
        """Start a process of a role."""
        self._lives += 1
        life = f"{name}#{self._lives}"
        common = (self.agenda, self.broker, self.making, name, life, off_s, self.invariants)
        if name in CONTROLS:
            app = ControlProcess(*common, len(WORKERS))
            self.group.join(app)
            self.running.setdefault(name, []).append(app)
        else:
            self.running.setdefault(name, []).append(DataProcess(*common, self._ended))

    def _ended(self, process: DataProcess, error: Exception) -> None:
        """Restart a role that ended by itself, as the supervisor does."""
        self.running[process.name].remove(process)
        if isinstance(error, NamesakeHeard):
            self.refused += 1
        if not self.running[process.name] and process.name not in self.down:
            self.restarts += 1
            self.agenda.after(RESTART_S, lambda: self._restart(process.name))

    def _restart(self, name: str) -> None:
        if not self.running[name]:
            self.start(name)

    def of(self, name: str) -> list[Process]:
        """Return the processes of a role, oldest first."""
        return list(self.running[name])

    def kill(self, name: str, late_s: float | None, for_s: float) -> None:
        """Kill every process of a role; start one after ``for_s``."""
        self.down.add(name)
        for process in self.of(name):
            process.die(late_s)
        self.running[name].clear()

        def again() -> None:
            self.down.discard(name)
            self._restart(name)

        self.agenda.after(for_s, again)

    # ------------------------------------------------------------------ the outside

    def _produce(self) -> None:
        rng = np.random.default_rng([self.schedule.seed, 1])
        for number, at_s in enumerate(np.sort(rng.uniform(*QUERIES_S, self.schedule.queries))):
            query = Query(payload=f"scan {number}", id=f"q{number}")
            self.write(float(at_s), QUERIES, int(rng.integers(PARTITIONS)), query)

    def write(self, at_s: float, logical: str, slot: int, record: Record) -> None:
        """Write a record as an external producer does: until the broker acknowledges it."""
        place = (physical(self.making.pipeline.name, logical), slot)

        def attempt() -> None:
            if self.broker.up:
                self.broker.append(place, b"", encode(record), self.agenda.now)
            else:
                self.agenda.after(0.1, attempt)

        self.agenda.at(at_s, attempt)

    def command(self, action: str, **arguments: str) -> None:
        """Give a command."""
        self._commands += 1
        command = Command(id=f"c{self._commands}", pipeline="p", action=action, arguments=arguments)
        self.write(self.agenda.now, COMMANDS, 0, command)


# ---------------------------------------------------------------------- faults


def _during(
    world: World, fault: ScheduledFault, begin: Callable[[Process], None],
    end: Callable[[Process], None],
) -> None:  # fmt: skip
    hit = world.of(fault.target)
    for process in hit:
        begin(process)
    world.agenda.after(fault.for_s, lambda: [end(each) for each in hit if each.alive])


def _cut(process: Process) -> None:
    process.link.out = process.link.back = False


def _healed(process: Process) -> None:
    process.link.out = process.link.back = True


def _kill(world: World, fault: ScheduledFault) -> None:
    world.kill(fault.target, None, fault.for_s)


def _late_kill(world: World, fault: ScheduledFault) -> None:
    world.kill(fault.target, fault.amount, fault.for_s)


def _freeze(world: World, fault: ScheduledFault) -> None:
    _during(world, fault, lambda each: each.freeze(), lambda each: each.thaw())


def _isolate(world: World, fault: ScheduledFault) -> None:
    _during(world, fault, _cut, _healed)


def _deaf(world: World, fault: ScheduledFault) -> None:
    _during(world, fault, lambda each: setattr(each.link, "back", False), _healed)


def _mute(world: World, fault: ScheduledFault) -> None:
    _during(world, fault, lambda each: setattr(each.link, "out", False), _healed)


def _replaced(
    begin: Callable[[World, ScheduledFault], None],
) -> Callable[[World, ScheduledFault], None]:
    def both(world: World, fault: ScheduledFault) -> None:
        begin(world, fault)
        world.agenda.after(fault.amount, lambda: world.start(fault.target))

    return both


def _second(world: World, fault: ScheduledFault) -> None:
    world.start(fault.target)


def _slow(world: World, fault: ScheduledFault) -> None:
    def delay(process: Process, seconds: float) -> None:
        process.link.delay_s = seconds

    _during(world, fault, lambda each: delay(each, fault.amount), lambda each: delay(each, 0.0))


def _broker_away(world: World, fault: ScheduledFault) -> None:
    world.broker.up = False
    world.agenda.after(fault.for_s, lambda: setattr(world.broker, "up", True))


def _replica(world: World, fault: ScheduledFault) -> None:
    topic = physical(world.making.pipeline.name, fault.target)
    world.broker.hold(topic)
    world.agenda.after(fault.for_s, lambda: world.broker.release(topic))


def _step(world: World, fault: ScheduledFault) -> None:
    def off(process: Process, seconds: float) -> None:
        process.wall.off_s = seconds

    _during(world, fault, lambda each: off(each, fault.amount), lambda each: off(each, 0.0))


def _policy(world: World, fault: ScheduledFault) -> None:
    world.command("apply-policy", policy=fault.target)


def _drain(world: World, fault: ScheduledFault) -> None:
    world.command("drain", target=fault.target)
    world.agenda.after(fault.for_s, lambda: world.command("restore", target=fault.target))


_BEGIN: Mapping[str, Callable[[World, ScheduledFault], None]] = {
    "kill": _kill,
    "late kill": _late_kill,
    "freeze": _freeze,
    "frozen and replaced": _replaced(_freeze),
    "cut": _isolate,
    "deaf": _deaf,
    "mute": _mute,
    "cut and replaced": _replaced(_isolate),
    "second": _second,
    "slow": _slow,
    "replica": _replica,
    "broker away": _broker_away,
    "step": _step,
    "policy": _policy,
    "drain": _drain,
}


def play(schedule: Schedule, **broken: bool) -> Played:
    """Play a schedule; raise ``Violated`` where an invariant does not hold.

    ``broken`` breaks a part on purpose (``Making``), for tests of the checker.
    """
    return World(schedule, replace(making_of(schedule), **broken)).play()  # type: ignore[arg-type]

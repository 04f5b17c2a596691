"""A controller and its environment for tests: a pipeline, a profile, reporting workers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from control.controller.controller import Controller
from control.controller.rental import Rentable
from control.policies.solvers import solve
from control.problem.problem import PlanError
from control.rollout.leases import Slots
from profiles.measurements import Entry, FanOut, Latency
from profiles.profile_table import ProfileTable
from schemas.effects import (
    COMMANDS,
    PLANS,
    REPORTS,
    Arrived,
    Effect,
    Event,
    Failed,
    Forget,
    Reject,
    Send,
    Solve,
    Solved,
    Woke,
)
from schemas.pipeline import Pipeline, Policy, Task, Variant
from schemas.records import Command, CommandResult, Lease, Plan, Record, Report, SlotState


def a_pipeline(
    *,
    locate: Mapping[str, int | None] = {"net": 1},
    read: Mapping[str, int | None] = {"forest": 2, "vit": None},
    policies: Iterable[Policy] = (),
    slots: int = 64,
    admission: bool = True,
) -> Pipeline:
    """Return two tasks, locate and read, with the named variants and their replicas."""

    def task(name: str, variants: Mapping[str, int | None], children: tuple[str, ...]) -> Task:
        return Task(
            name=name,
            slots=slots,
            children=children,
            variants=tuple(
                Variant(task=name, name=v, operator="m:C", batch=4, replicas=n)
                for v, n in variants.items()
            ),
        )

    return Pipeline(
        name="postcode",
        slo_s=0.3,
        tasks=(task("locate", locate, ("read",)), task("read", read, ())),
        policies=(Policy(name="static"), *policies),
        policy="static",
        admission=admission,
    )


def an_entry(
    task: str, variant: str, items_per_s: float, accuracy: float, fan_out: float | None = None
) -> Entry:
    """Return the entry of a CPU variant with ``items_per_s`` at any batch up to 4."""
    rows = tuple(
        Latency(batch=b, repeats=9, **dict.fromkeys(
            ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s"), b / items_per_s))
        for b in (1, 4)
    )  # fmt: skip
    children = {} if fan_out is None else {"read": FanOut(fan_out, {int(fan_out): 1.0})}
    return Entry(
        task=task, variant=variant, device="cpu", operator="m:C", weights_sha256="", load_s=1.0,
        memory_bytes=1, accuracy=accuracy, children=children, latency=rows,
    )  # fmt: skip


def a_profile() -> ProfileTable:
    """Return a profile: locate/net emits 5 items for read; read/vit is more accurate than
    read/forest and five times slower."""
    return ProfileTable(
        "postcode",
        (
            an_entry("locate", "net", 100.0, 0.9, fan_out=5.0),
            an_entry("read", "forest", 1000.0, 0.8),
            an_entry("read", "vit", 200.0, 0.95),
        ),
    )


def a_lease(
    worker: str, task: str, variant: str, slots: Iterable[int], open_slot: int = -1, batch: int = 4
) -> Lease:
    return Lease(
        worker=worker, task=task, variant=variant, batch=batch, slots=tuple(slots),
        open_slot=open_slot,
    )  # fmt: skip


def some_slots(count: int = 64, **opened: int) -> dict[str, Slots]:
    return {task: Slots(count, opened.get(task, -1)) for task in ("locate", "read")}


def an_ingress_report(
    sent_s: float, arrived: float = 0.0, node: str = "in-0", epoch: int = 0
) -> Report:
    return Report(
        node=node, role="ingress", pipeline="postcode", epoch=epoch, incarnation=1.0, sent_s=sent_s,
        state="ready", counts={"arrived": arrived},
    )  # fmt: skip


@dataclass
class FakeWorker:
    """A worker that follows the newest plan immediately."""

    name: str
    device: str = "cpu"
    incarnation: float = 0.0
    plan: Plan | None = None
    queued: int = 0
    loads: bool = False  # is loading
    leaves: bool = False  # is leaving
    counts: dict[str, float] = field(default_factory=dict)

    def report(self, now: float) -> Report:
        leases = self.plan.leases if self.plan else ()
        lease = next((each for each in leases if each.worker == self.name), None)
        state = "loading" if self.loads else "ready"
        if lease is None or lease.open_slot < 0:
            state = "draining" if lease else "idle"
        state = "leaving" if self.leaves else state
        return Report(
            node=self.name, role="worker", pipeline="postcode",
            epoch=self.plan.epoch if self.plan else 0, incarnation=self.incarnation, sent_s=now,
            state=state, device=self.device, task=lease.task if lease else "",
            variant=lease.variant if lease and not self.loads else "",
            slots=tuple(SlotState(lease.task, s, 0, self.queued) for s in lease.slots)
            if lease else (), counts=dict(self.counts),
        )  # fmt: skip


@dataclass
class World:
    """Drives a controller: ticks of 0.1 s, a report of every worker every 0.2 s."""

    pipeline: Pipeline
    profile: ProfileTable | None = None
    expected: int = 3
    now: float = 1000.0
    solving: bool = True  # solves finish immediately
    workers: dict[str, FakeWorker] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    topic: list[Plan] = field(default_factory=list)  # also those of other controllers
    results: list[CommandResult] = field(default_factory=list)
    solves: list[Solve] = field(default_factory=list)  # in flight
    forgotten: list[str] = field(default_factory=list)  # keys of the plans topic
    rejected: list[Reject] = field(default_factory=list)
    commands: int = 0
    ingress: bool = True  # an ingress reports
    memory: Mapping[str, int] = field(default_factory=dict)
    rentable: Rentable | None = None
    commanded: list[Arrived] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller = self._controller()

    def _controller(self) -> Controller:
        return Controller(
            self.pipeline, self.profile, self.expected, self.memory, rentable=self.rentable
        )

    def start(self, *workers: str) -> "World":
        for name in workers:
            self.workers[name] = FakeWorker(name, incarnation=self.now)
        self.tell(Woke())
        self.run(0.2)
        return self

    def restart_controller(self) -> None:
        """Replace the controller by a new one that reads the records of the old one."""
        self.controller = self._controller()
        self.solves.clear()
        for record in (*self.topic, *self.results):
            self.arrive(record, PLANS)
        for command in self.commanded:
            self.tell(command)
        self.tell(Woke())

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.1)):
            self.now = round(self.now + 0.1, 1)  # avoids accumulated rounding errors
            if round(self.now * 10) % 2 == 0:
                if self.ingress:
                    epoch = self.plans[-1].epoch if self.plans else 0
                    self.arrive(an_ingress_report(self.now, epoch=epoch), REPORTS)
                for name in sorted(self.workers):
                    self.arrive(self.workers[name].report(self.now), REPORTS)
            self.tell(Woke())

    def command(self, action: str, *, id: str = "", **arguments: str) -> CommandResult | None:
        """Send a command; return its result if it is immediate."""
        self.commands += 1
        name = id or f"c{self.commands}"
        command = Command(id=name, pipeline="postcode", action=action, arguments=arguments)
        self.commanded.append(Arrived(command, COMMANDS, 0, self.commands, self.now))
        self.tell(self.commanded[-1])
        return next((result for result in self.results if result.id == name), None)

    def arrive(self, record: Record, topic: str) -> None:
        self.tell(Arrived(record, topic, 0, self.commands, self.now))

    def tell(self, event: Event) -> None:
        self._perform(self.controller.handle(event, self.now))

    def finish_solves(self) -> None:
        while self.solves:
            job = self.solves.pop(0)
            try:
                outcome: Event = Solved(job.job, solve(job.solver, job.problem))
            except PlanError as error:
                outcome = Failed(job.job, str(error))
            self.tell(outcome)

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Solve):
                self.solves.append(effect)
            elif isinstance(effect, Reject):
                self.rejected.append(effect)
            elif isinstance(effect, Forget):
                self.forgotten.append(effect.key)
            elif isinstance(effect, Send):
                self._sent(effect.record)
        if self.solving:
            self.finish_solves()

    def _sent(self, record: Record) -> None:
        if isinstance(record, Plan):
            self.plans.append(record)
            self.topic.append(record)
            for worker in self.workers.values():
                worker.plan = record
        elif isinstance(record, CommandResult):
            self.results.append(record)

    @property
    def plan(self) -> Plan:
        return self.plans[-1]

    def leases(self) -> dict[str, tuple[str, str, tuple[int, ...], int]]:
        """Return worker -> (task, variant, slots, open slot) of the newest plan."""
        return {x.worker: (x.task, x.variant, x.slots, x.open_slot) for x in self.plan.leases}

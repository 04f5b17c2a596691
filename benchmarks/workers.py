"""Measure the control app with many reporting workers.

    python -m benchmarks.workers [--workers 1000] [--tasks 10] [--readers 100] [--seconds 20]
                                 [--json]

One process emulates the workers on the local broker: it sends each one's report every 200 ms,
follows the newest plan as a worker does, and loads at once. The control app is the product's. Keys:

``control_cpu_share``     CPU seconds of the control app (solvers included) a second, at rest
``plan_to_last_worker_s``  from a command to the plan at the workers (a policy that moves leases)
``plan_made_s``           until the controller had made that plan
``handover_s``            from a worker's last report to the plan that hands its slots on
``broker_cpu_share``      CPU seconds of the broker a second
``reports_per_s``         reports that the broker has confirmed

The emulated workers read no slots. So the broker's work for slots is measured afterwards, alone,
with ``--readers`` consumers, each with a worker's settings, one slot and the plans:

``idle_fetches_per_s``    their requests while there is nothing to read
``idle_broker_cpu_share``  CPU seconds of the broker a second for these
``commits_per_s``         their commits while each commits as often as a busy worker
``commits_broker_cpu_share``  CPU seconds of the broker a second for these and the fetches
"""

import argparse
import heapq
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from benchmarks.idle_readers import IdleReaders
from benchmarks.machine_speed import machine
from headrace.broker import local_broker as local
from headrace.config.pipeline_file import read_pipeline_file
from headrace.processes import end_session, environment
from operators.reporter import INTERVAL_S
from schemas.codec.single_object import decode, encode
from schemas.effects import COMMANDS, PLANS, REPORTS, work_topic
from schemas.enumerations import NodeState
from schemas.records import Command, Lease, Plan, Report, SlotState
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics

ROOT = Path(__file__).parents[1]
WAIT_S = 120.0
SETTLE_S = 5.0
ITEMS_PER_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The result of a run."""

    workers: int
    tasks: int
    control_cpu_share: float
    plan_to_last_worker_s: float
    plan_made_s: float
    handover_s: float
    broker_cpu_share: float
    reports_per_s: float
    longest_silence_s: float  # between two reports of a worker: the emulation's own delay
    plan_bytes: int
    readers: int
    idle_fetches_per_s: float
    idle_broker_cpu_share: float
    commits_per_s: float
    commits_broker_cpu_share: float


def description(workers: int, tasks: int) -> dict[str, Any]:
    """Return a pipeline file: a chain of tasks with two policies that share the workers unlike."""
    each = workers // tasks
    names = [f"task{number}" for number in range(tasks)]

    def task(number: int) -> dict[str, Any]:
        below = names[number + 1 : number + 2]
        variants = {
            name: {"operator": "benchmarks.operators:Echo", "batch": 8, "replicas": replicas}
            for name, replicas in (("plain", each), ("other", 0))
        }
        return {"slots": each + 2, "variants": variants, **({"children": below} if below else {})}

    return {
        "name": f"workers-{os.getpid()}",
        "slo": "10s",
        "tasks": {name: task(number) for number, name in enumerate(names)},
        "policies": {
            "moved": {"kind": "static", "replicas": {f"{name}/other": each for name in names}},
        },
        "policy": "static",
        "cluster": {"devices": {"cpu": workers}},
    }


@dataclass
class Fleet:
    """The emulated workers of one process."""

    kafka: KafkaConfig
    pipeline: str
    names: Sequence[str]
    plan: Plan | None = None
    leases: dict[str, Lease] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    confirmed: int = 0
    longest_s: float = 0.0
    plan_bytes: int = 0

    def __post_init__(self) -> None:
        self._began_s = time.time()
        # One process sends for all of them, in batches; a real fleet has a producer a process.
        self._producer = producer(self.kafka, **{"linger.ms": 5})
        self._consumer = consumer(self.kafka, "headrace.reader")
        self._consumer.assign([TopicPartition(physical("", PLANS), 0, OFFSET_BEGINNING)])
        now, step = time.monotonic(), INTERVAL_S / len(self.names)
        self._due = [(now + number * step, name) for number, name in enumerate(self.names)]
        self._last = dict.fromkeys(self.names, 0.0)

    def until(self, holds: Any, what: str) -> float:
        """Report and follow plans until a condition holds; return the seconds that it took."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > WAIT_S:
                raise TimeoutError(f"waited {WAIT_S:g} s for {what}")
            self._step()
        return time.monotonic() - began

    def pass_time(self, seconds: float) -> None:
        """Report and follow plans for ``seconds``."""
        until_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= until_s, "time to pass")

    def command(self, action: str, **arguments: str) -> None:
        """Give a command."""
        told = Command(
            id=f"c{time.time_ns()}", pipeline=self.pipeline, action=action, arguments=arguments
        )
        self._producer.produce(physical("", COMMANDS), encode(told), partition=0)
        self._producer.poll(0)

    def _step(self) -> None:
        now = time.monotonic()
        while self._due[0][0] <= now:
            due_s, name = self._due[0]
            later_s = max(due_s + INTERVAL_S, now + INTERVAL_S / 2)
            heapq.heapreplace(self._due, (later_s, name))
            if name not in self.silent:
                self._report(name, now)
        self._producer.poll(0)
        wait_s = min(max(self._due[0][0] - time.monotonic(), 0.0), 0.005)
        for message in self._consumer.consume(10, timeout=wait_s):
            if message.error() is None and message.value():
                self._follow(decode(message.value() or b""), len(message.value() or b""))

    def _follow(self, record: object, size: int) -> None:
        if isinstance(record, Plan) and record.pipeline == self.pipeline:
            self.plan, self.plan_bytes = record, size
            self.leases = {lease.worker: lease for lease in record.leases}

    def _report(self, name: str, now: float) -> None:
        if self._last[name]:
            self.longest_s = max(self.longest_s, now - self._last[name])
        self._last[name] = now
        lease, epoch = self.leases.get(name), self.plan.epoch if self.plan else 0
        serves = lease is not None and lease.open_slot >= 0
        state = NodeState.READY if serves else NodeState.DRAINING if lease else NodeState.IDLE
        slots = [SlotState(lease.task, slot, 0, 0) for slot in lease.slots] if lease else []
        report = Report(
            node=name, role="worker", pipeline=self.pipeline, epoch=epoch,
            incarnation=self._began_s, sent_s=time.time(), state=state, device="cpu",
            task=lease.task if lease else "", variant=lease.variant if lease else "",
            slots=tuple(slots), counts=_counts(lease, now),
        )  # fmt: skip
        self._producer.produce(
            physical("", REPORTS), encode(report), partition=0, on_delivery=self._delivered
        )

    def _delivered(self, error: Any, _: Any) -> None:
        self.confirmed += error is None

    def reported_s(self, name: str) -> float:
        """Return the time of a worker's last report, monotonic."""
        return self._last[name]

    def close(self) -> None:
        """Close the clients."""
        self._producer.close()
        self._consumer.close()


def _counts(lease: Lease | None, now: float) -> Mapping[str, float]:
    """Return the counts that a worker reports which serves five items a second."""
    if lease is None:
        return {}
    items = float(int(now * ITEMS_PER_S))
    names = ("arrived", "finished", "batches", "busy_s")
    return {f"{name}/{lease.key}": items for name in names}


def _cpu_s(process: psutil.Process) -> float:
    every = [process, *process.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in every)


def measure(folder: Path, workers: int, tasks: int, readers: int, seconds: float) -> Measured:
    """Run and return the figures."""
    path = folder / "pipeline.yaml"
    path.write_text(yaml.safe_dump(description(workers, tasks)))
    pipeline = read_pipeline_file(path).pipeline
    with local.borrow(folder / "broker") as running:
        kafka = KafkaConfig(running.bootstrap)
        ensure_topics(kafka, topics(pipeline))
        line = [sys.executable, "-m", "headrace", "control", str(path)]
        with (folder / "control.log").open("wb") as log:
            control = subprocess.Popen(
                [*line, "--bootstrap", running.bootstrap], stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, cwd=ROOT, start_new_session=True,
                env=environment(os.environ, os.getpid()),
            )  # fmt: skip
        fleet = Fleet(kafka, pipeline.name, [f"w{number:05d}" for number in range(workers)])
        try:
            found = _controlled(fleet, psutil.Process(control.pid), running.pid, seconds)
        finally:
            fleet.close()
            os.killpg(control.pid, signal.SIGTERM)
            end_session(control.pid)
            control.wait()
        slots = [
            (physical(pipeline.name, work_topic(task.name)), slot)
            for task in pipeline.tasks
            for slot in range(task.slots)
        ]
        waited = _waited(kafka, f"{pipeline.name}.readers", slots[:readers], running.pid, seconds)
    return Measured(workers=workers, tasks=tasks, **found, **waited)


def _waited(
    kafka: KafkaConfig,
    group: str,
    slots: Sequence[tuple[str, int]],
    broker: int,
    seconds: float,
) -> dict[str, Any]:
    """Measure the broker with idle readers, and with readers that commit; return the figures by
    name."""
    process = psutil.Process(broker)
    readers = IdleReaders(kafka, group, slots)

    def shares(commit: bool) -> tuple[Counter[str], float]:
        readers.wait(SETTLE_S, commit=commit)
        cpu_s, requests, began = _cpu_s(process), readers.requests, time.monotonic()
        readers.wait(seconds, commit=commit)
        took_s = time.monotonic() - began
        sent = readers.requests - requests
        rates = Counter({name: round(count / took_s) for name, count in sent.items()})
        return rates, round((_cpu_s(process) - cpu_s) / took_s, 3)

    try:
        idle, idle_share = shares(commit=False)
        busy, busy_share = shares(commit=True)
    finally:
        readers.close()
    return {
        "readers": len(slots),
        "idle_fetches_per_s": idle["Fetch"],
        "idle_broker_cpu_share": idle_share,
        "commits_per_s": busy["OffsetCommit"],
        "commits_broker_cpu_share": busy_share,
    }


def _controlled(
    fleet: Fleet, control: psutil.Process, broker: int, seconds: float
) -> dict[str, Any]:
    """Measure the control app; return the figures by name."""
    fleet.until(lambda: len(fleet.leases) == len(fleet.names), "a lease for every worker")
    fleet.pass_time(SETTLE_S)
    kafka = psutil.Process(broker)
    cpu_s, broker_s, sent, began = _cpu_s(control), _cpu_s(kafka), fleet.confirmed, time.monotonic()
    fleet.longest_s = 0.0
    fleet.pass_time(seconds)
    took_s = time.monotonic() - began
    share, of_broker = (_cpu_s(control) - cpu_s) / took_s, (_cpu_s(kafka) - broker_s) / took_s
    rate, longest_s = (fleet.confirmed - sent) / took_s, fleet.longest_s
    moved_s, made_s = _moved_s(fleet)
    fleet.pass_time(SETTLE_S)
    return {
        "control_cpu_share": round(share, 3),
        "plan_to_last_worker_s": round(moved_s, 3),
        "plan_made_s": round(made_s, 3),
        "handover_s": round(_handover_s(fleet), 3),
        "broker_cpu_share": round(of_broker, 3),
        "reports_per_s": round(rate, 1),
        "longest_silence_s": round(longest_s, 3),
        "plan_bytes": fleet.plan_bytes,
    }


def _moved_s(fleet: Fleet) -> tuple[float, float]:
    """Return the time from a command that changes every lease to its plan at the workers, and
    until the controller had made it."""
    told_s = time.time()
    fleet.command("apply-policy", policy="moved")
    took_s = fleet.until(
        lambda: fleet.plan is not None and fleet.plan.settings.policy == "moved",
        "the plan of another policy",
    )
    assert fleet.plan is not None
    return took_s, fleet.plan.issued_s - told_s


def _handover_s(fleet: Fleet) -> float:
    """Return the time from a worker's last report to the plan without it."""
    lost = fleet.names[len(fleet.names) // 2]
    fleet.silent.add(lost)
    fleet.until(lambda: lost not in fleet.leases, "the hand-over of its slots")
    return time.monotonic() - fleet.reported_s(lost)


def report(found: Measured) -> str:
    """Return the figures as text."""
    return "\n".join(f"{name:<26} {value}" for name, value in asdict(found).items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="The control app with many workers.")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--readers", type=int, default=100, help="real consumers, afterwards")
    parser.add_argument("--seconds", type=float, default=20.0, help="of measuring at rest")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-workers-") as folder:
        found = measure(Path(folder), asked.workers, asked.tasks, asked.readers, asked.seconds)
    print(json.dumps({**asdict(found), "machine": machine()}) if asked.json else report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Run a pipeline with one process per role that tests and benchmarks may kill, stop, resume and
restart, under a load whose queries are all tracked to their answers.

The rig has no threads: ``until`` and ``pass_time`` send the queries that are due and read the
pipeline's topics.
"""

import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition
from confluent_kafka.admin import NewPartitions

from benchmarks.hosts import Host
from benchmarks.received_answers import Answers, NotOneAnswer
from benchmarks.received_reports import Reports
from control.controller.command_queue import COMMAND_VALID_S
from headrace.broker.connect import KAFKA_CONFIG
from headrace.client.formats import Headers, read_answer, writer_of
from headrace.client.topic_clients import decoded, new_id
from headrace.cluster.supervisor import last_word
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.topology import Role, file_roles
from headrace.processes import end_session, environment
from schemas.codec.single_object import encode
from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    DEAD_LETTERS,
    PLANS,
    QUERIES,
    REPORTS,
    RESULTS,
)
from schemas.records import Answer, Command, CommandResult, DeadLetter, Origin, Plan, Query, Report
from streams.control_app.control_driver import READY
from streams.kafka.admin.topic_admin import ensure_topics, partitions_of
from streams.kafka.kafka_client import admin, consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics

ROOT = Path(__file__).parents[1]
WAIT_S = 40.0  # long enough for a busy machine
SETTLED = ("ready", "idle", "draining")
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # caused by close()
FRESH_S = 0.6  # a node is alive if it reported within this time


class Stuck(Exception):
    """Raised if an awaited condition does not come about; the message has the pipeline's state."""


class Unanswered(Stuck, NotOneAnswer):
    """Raised if acknowledged queries get no answer."""


@dataclass(slots=True)
class Asked:
    """A query: its payload and its position in the topic."""

    payload: bytes
    origin: Origin | None = None  # None: not acknowledged, or at an unknown offset
    acknowledged: bool = False


@dataclass
class Rig:
    """A running pipeline; ``description`` is a pipeline file without a name."""

    bootstrap: str
    folder: Path
    description: dict[str, Any]
    asked: dict[str, Asked] = field(default_factory=dict)
    answers: Answers = field(default_factory=Answers)
    letters: list[DeadLetter] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    results: list[CommandResult] = field(default_factory=list)
    reports: Reports = field(default_factory=Reports)
    leaders: list[int] = field(default_factory=list)  # pids of all processes ever started
    properties: dict[str, str] = field(default_factory=dict)  # of every Kafka client
    bootstraps: dict[str, str] = field(default_factory=dict)  # of roles with their own way
    hosts: dict[str, Host] = field(default_factory=dict)  # of roles that have one of their own
    module: str = "headrace"  # the module that later starts run
    variables: dict[str, str] = field(default_factory=dict)  # environment variables of later starts
    may_end: set[str] = field(default_factory=set)  # roles that are about to end by themselves
    _processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _began_s: dict[str, float] = field(default_factory=dict)
    _log_from: dict[str, int] = field(default_factory=dict)  # offset of the process in its log
    _frozen: set[str] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)  # in flight
    _rate: float = 0.0
    _due_s: float = 0.0
    _numbers: int = 0

    def __post_init__(self) -> None:
        self.name = f"rig-{uuid.uuid4().hex[:8]}"
        path = self.folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump({"name": self.name, **self.description}))
        self.file = read_pipeline_file(path)
        self._write = writer_of(self.file.pipeline)
        self.kafka = KafkaConfig(self.bootstrap, self.properties)
        if self.properties:
            written = self.folder / "client.properties"
            lines = [f"{name}={value}\n" for name, value in self.properties.items()]
            written.write_text("".join(lines))
            self.variables[KAFKA_CONFIG] = str(written)
        self.roles = {role.name: role for role in file_roles(self.file)}
        ensure_topics(self.kafka, topics(self.file.pipeline))
        # Outages are deliberate: the client library logs them to a file only.
        self._library = logging.FileHandler(self.log("rig"))
        self._library.setFormatter(logging.Formatter("%(created).3f %(message)s"))
        self._told = logging.getLogger(f"{__name__}.{self.name}")
        self._told.propagate = False
        self._told.setLevel(logging.DEBUG)
        self._told.addHandler(self._library)
        self._producer = producer(self.kafka, logger=self._told, debug="eos")
        self._consumer = consumer(self.kafka, f"{self.name}.rig", logger=self._told)
        self._readers = {physical(self.name, each): read for each, read in self._reads().items()}
        counts = {topic: partitions_of(self.kafka, topic) for topic in self._readers}
        self._consumer.assign(
            [
                TopicPartition(topic, partition, OFFSET_BEGINNING)
                for topic in self._readers
                for partition in range(counts[topic])
            ]
        )

    def _reads(self) -> dict[str, Callable[[Message], None]]:
        """Return by logical topic what is done with its records."""
        followed = (DEAD_LETTERS, PLANS, REPORTS, COMMAND_RESULTS)
        return {RESULTS: self._answer, **dict.fromkeys(followed, self._record)}

    # ------------------------------------------------------------------ roles

    def start(self, *names: str) -> None:
        """Start roles as ``headrace up`` does."""
        for name in names:
            role = self.roles[name]
            self._began_s[name] = time.time()
            self._log_from[name] = self.log(name).stat().st_size if self.log(name).exists() else 0
            self._processes[name] = self._process(role, self.log(name))

    def _process(self, role: Role, log: Path) -> "subprocess.Popen[bytes]":
        """Start a process of a role that appends to a log."""
        with log.open("ab") as file:
            process = subprocess.Popen(
                self._line(role), stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=ROOT,
                start_new_session=True, env=self._environment(),
            )  # fmt: skip
        self.leaders.append(process.pid)
        return process

    def _line(self, role: Role) -> list[str]:
        host = self.hosts.get(role.name)
        line = [] if host is None else host.command
        line += [sys.executable, "-m", self.module, role.kind, str(self.file.path)]
        return [*line, "--bootstrap", self._bootstrap_of(role), *role.arguments]

    def _bootstrap_of(self, role: Role) -> str:
        return self.bootstraps.get(role.name, self.bootstrap)

    def _environment(self) -> dict[str, str]:
        found = {**environment(os.environ, os.getpid()), **self.variables}
        found.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile Headrace anew
        return found

    def up(self) -> float:
        """Start every role and wait until all serve; return the seconds that it took."""
        began = time.monotonic()
        self.start(*self.roles)
        self.until(self.serves, "every role to serve")
        return time.monotonic() - began

    def kill(self, name: str) -> float:
        """Kill a role with SIGKILL; return the time of the kill."""
        at_s = time.time()
        process = self._processes.pop(name)
        end_session(process.pid)
        process.wait()
        self._frozen.discard(name)
        return at_s

    def ended(self, name: str) -> bool:
        """Return whether a role has ended by itself; its process is then forgotten."""
        if self._processes[name].poll() is None:
            return False
        del self._processes[name]
        return True

    def another(self, name: str) -> int:
        """Start a second process of a role, wait for its end, and return its exit code."""
        second = self._process(self.roles[name], self.log(f"{name}-second"))
        try:
            self.until(lambda: second.poll() is not None, f"a second {name} to be refused")
        finally:
            end_session(second.pid)
            second.wait()
        return second.returncode

    def stop(self, name: str) -> int:
        """Send SIGTERM and wait for the end of a role; return its exit code."""
        process = self._processes.pop(name)
        process.terminate()
        self.until(lambda: process.poll() is not None, f"{name} to end")
        return process.returncode

    def give_up(self) -> None:
        """Remove the roles that have ended."""
        for name in [
            name for name, process in self._processes.items() if process.poll() is not None
        ]:
            del self._processes[name]

    def freeze(self, name: str) -> None:
        """Suspend a role with SIGSTOP."""
        self._frozen.add(name)
        os.killpg(self._processes[name].pid, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Resume a role with SIGCONT."""
        os.killpg(self._processes[name].pid, signal.SIGCONT)
        self._frozen.discard(name)

    def log(self, name: str) -> Path:
        """Return the path of a role's log."""
        return self.folder / f"{name}.log"

    def close(self) -> None:
        """Kill every role and close the clients."""
        for process in self._processes.values():
            end_session(process.pid)
            process.wait()
        self._producer.purge()
        self._producer.close()
        self._consumer.close()
        self._library.close()

    # ------------------------------------------------------------------ queries and commands

    def ask(
        self, payload: bytes, *, name: str = "", deadline_s: float | None = None, session: str = ""
    ) -> str:
        """Send a query; return its id."""
        name = name or new_id("query")
        self._open.add(name)
        query = Query(payload=payload, id=name, deadline_s=deadline_s, session=session)
        value, headers = self._write(query)
        self.asked[name] = self.put(value, headers)
        self.asked[name].payload = payload
        return name

    def put(self, payload: bytes | None, headers: Headers) -> Asked:
        """Send raw bytes with any headers; the rig does not track an answer to them."""
        asked = Asked(payload or b"")

        def delivered(error: Any, message: Message) -> None:
            if error is None:
                # A broker confirms a repeated request without its offset.
                offset, asked.acknowledged = message.offset(), True
                if offset is not None and offset >= 0:
                    asked.origin = Origin(message.partition(), offset)
            elif error.code() not in _PURGED:
                raise Stuck(f"the broker did not take a query: {error.str()}")

        self._producer.produce(
            physical(self.name, QUERIES), payload, headers=[*headers], on_delivery=delivered
        )
        self._producer.poll(0)
        return asked

    def renew_producer(self) -> None:
        """Send later queries by another producer: a leader that lost records refuses the old
        producer's sequence numbers. The new producer has no sequence numbers: a node that has
        started beside a frozen controller hands out no producer ids for 30 s."""
        self._producer.close()
        self._producer = producer(self.kafka, logger=self._told, **{"enable.idempotence": False})

    def add_partitions(self, topic: str, count: int) -> None:
        """Give one of the pipeline's topics ``count`` partitions; later queries go to all of them.

        Other producers learn of them when they ask for metadata the next time.
        """
        name = physical(self.name, topic)
        client = admin(self.kafka)
        client.create_partitions([NewPartitions(name, count)])[name].result(WAIT_S)

        def known() -> bool:
            return len(self._producer.list_topics(name, WAIT_S).topics[name].partitions) == count

        self.until(known, f"{count} partitions of {name}")

    def offer(self, rate: float) -> None:
        """Set the rate at which ``step`` sends queries; 0 ends the load."""
        self._rate, self._due_s = rate, time.monotonic()

    @property
    def rate(self) -> float:
        """The rate of the load, queries/s."""
        return self._rate

    def command(self, action: str, **arguments: str) -> CommandResult:
        """Send a command and return its result."""
        return self.result_of(self.order(action, **arguments))

    def order(self, action: str, **arguments: str) -> Command:
        """Send a command; return it without its result."""
        command = Command(
            id=new_id("command"), pipeline=self.name, action=action, arguments=arguments,
            issued_s=time.time(),
        )  # fmt: skip
        self._give(command)
        return command

    def _give(self, command: Command) -> None:
        self._producer.produce(physical(self.name, COMMANDS), encode(command), partition=0)
        self._producer.poll(0)

    def result_of(self, command: Command) -> CommandResult:
        """Return a command's result.

        The command is repeated until it has one: a control app that starts ignores commands that
        have waited too long, and executes none twice.
        """
        sent_s = time.monotonic()

        def answered() -> CommandResult | None:
            nonlocal sent_s
            if time.monotonic() - sent_s > COMMAND_VALID_S / 2:
                self._give(command)
                sent_s = time.monotonic()
            return self._result(command.id)

        self.until(answered, f"the result of {command.action}")
        found = self._result(command.id)
        assert found is not None
        return found

    def _result(self, command: str) -> CommandResult | None:
        return next((result for result in self.results if result.id == command), None)

    # ------------------------------------------------------------------ waiting

    def until(
        self,
        holds: Callable[[], object],
        what: str,
        within_s: float = WAIT_S,
        failure: type[Stuck] = Stuck,
    ) -> float:
        """Send and read until a condition holds; return the seconds that it took.

        Raises ``failure`` after ``within_s``, and ``Stuck`` if a role ends by itself."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > within_s:
                raise failure(f"waited {within_s:g} s for {what}; {self._story()}")
            self.step()
        return time.monotonic() - began

    def pass_time(self, seconds: float) -> None:
        """Send and read for ``seconds``."""
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_s, "time to pass", seconds + WAIT_S)

    def step(self) -> None:
        """Send due queries, then read available records. Raises ``Stuck`` if a role has ended."""
        while self._rate and self._due_s <= time.monotonic():
            self._due_s += 1 / self._rate
            self._numbers += 1
            self._ask_next(self._numbers)
        self._producer.poll(0)
        for message in self._consumer.consume(200, timeout=0.01):
            if message.error() is None:
                self._readers[message.topic()](message)
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None and name not in self.may_end:
                raise Stuck(f"{name} ended by itself with {code}: {last_word(self.log(name))}")

    def _ask_next(self, number: int) -> None:
        self.ask(b"%d" % number)

    def _answer(self, message: Message) -> None:
        answer = read_answer(message.value() or b"")
        self.answers.append(answer)
        self._open.discard(answer.id)
        asked = self.asked.get(answer.id)
        if asked is not None and asked.origin is None:
            # A request that was repeated is confirmed late, and without its offset.
            asked.origin = answer.origin

    def _record(self, message: Message) -> None:
        record = decoded(message.value() or b"")
        if isinstance(record, DeadLetter):
            self.letters.append(record)
        elif isinstance(record, Plan) and record.pipeline == self.name:
            self.plans.append(record)
        elif isinstance(record, CommandResult) and record.pipeline == self.name:
            self.results.append(record)
        elif isinstance(record, Report) and record.pipeline == self.name:
            self.reports.take(record)

    def _story(self) -> str:
        nodes = ", ".join(f"{r.node} {r.state} at {r.epoch}" for r in self.reports.values())
        plan = f"plan {self.plans[-1].epoch}" if self.plans else "no plan"
        last = {name: last_word(self.log(name)) for name in self.roles}
        words = "; ".join(f"{name}: {word}" for name, word in last.items() if word)
        unknown = sum(asked.origin is None for asked in self.asked.values())
        waiting = f"{len(self.waiting)} unanswered ({unknown} not acknowledged)"
        return f"{plan}, {nodes or 'no reports'}, {waiting}; {words}"

    # ------------------------------------------------------------------ conditions

    @property
    def running(self) -> set[str]:
        """The names of the roles with a process."""
        return set(self._processes)

    @property
    def pids(self) -> dict[str, int]:
        """The processes of the roles that run, by name."""
        return {name: process.pid for name, process in self._processes.items()}

    @property
    def plan(self) -> Plan:
        """The plan with the highest epoch."""
        return max(self.plans, key=lambda plan: plan.epoch)

    def serves(self) -> bool:
        """Return whether running roles follow the newest plan, and the plan routes traffic only to
        open slots, and to every task that has some."""
        if not self.plans:
            return False
        plan = self.plan
        names = [name for name in self._processes if name not in self._frozen]
        following = [self._follows(name, plan) for name in names]
        opened = {(lease.task, lease.open_slot) for lease in plan.leases if lease.open_slot >= 0}
        routed = {(route.task, route.slot) for route in plan.routes if route.share > 0}
        fed = routed <= opened and dict(routed).keys() == dict(opened).keys()
        return fed and all(following) and all(map(self._stands_by, names))

    def _stands_by(self, role: str) -> bool:
        """Return whether a control app has logged that it is ready; a standby sends no reports."""
        if self.roles[role].kind != "control":
            return True
        with self.log(role).open("rb") as log:
            log.seek(self._log_from[role])
            return READY.encode() in log.read()

    def _follows(self, role: str, plan: Plan) -> bool:
        told = [self.reports.get(node) for node in self.roles[role].nodes]
        return all(
            report is not None
            and report.incarnation >= self._began_s[role]
            and report.sent_s > time.time() - FRESH_S
            and report.epoch == plan.epoch
            and report.state in SETTLED
            for report in told
        )

    @property
    def waiting(self) -> set[str]:
        """The ids of the queries in flight."""
        return self._open

    # ------------------------------------------------------------------ the account

    def settle(self) -> None:
        """End the load and wait for every answer, then 0.5 s more for duplicates."""
        self.offer(0)
        self.until(lambda: not self.waiting, "an answer to every query", failure=Unanswered)
        self.pass_time(0.5)

    def answer_to(self, name: str) -> Answer:
        """Return the one answer to a query."""
        self.until(lambda: name not in self.waiting, f"the answer to {name}")
        self.answers.check_single()
        return next(answer for answer in self.answers if answer.id == name)

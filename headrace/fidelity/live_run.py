"""A live run of given arrivals on a temporary broker: its answers, plans and figures.

Roles are those of ``headrace up``. With a dilation above 1 they run in slower time
(streams/live/dilation.py); "inner" times are theirs, "wall" times are the machine's.
"""

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from msgspec import structs

from headrace.arrivals.arrival_processes import Recorded, Times
from headrace.broker.broker_warm_up import warm_up_broker
from headrace.broker.jar_lock import ROOTS
from headrace.broker.watchdog import temporary_broker
from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import Asker, Commander, Tail, decoded, new_id
from headrace.cluster.local_run import LocalRun, ReceivedSignal
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile
from headrace.config.user_functions import load_workload
from headrace.errors import Unsuccessful
from headrace.load.load import drawn_sizes, inputs_of
from headrace.machine_look import cpu_used_s
from headrace.results.figures import Figures, figures
from headrace.results.latency_steps import StepTimes
from headrace.roles.process_setup import dilated
from headrace.roles.profile_lookups import accuracies
from headrace.simulation.paid_batches import own_rates
from headrace.simulation.run_input import real_workers
from headrace.terminal import say, waiting
from schemas.effects import PLANS, REPORTS, RESULTS
from schemas.records import Answer, Plan, Query, Report, Value
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import read_to_end
from streams.live.dilation import Dilation
from streams.observers.run_metrics import RunMetrics, given_up
from streams.topics import physical

SETTLE_S = 1.0  # inner, between readiness and the first arrival, as in simulations
STEP_S = 0.02  # wall, the longest sleep of the send loop
PATIENCE_S = 3.0  # wall, for answers after the last deadline and grace
TEND_S = 0.5  # wall
WARM_UP_S = 20.0  # of the broker: a longer one makes hops no faster
LIBRARIES = ("headrace", "confluent-kafka", "faust-streaming", "numpy", "pulp", "highspy")
UNREAD_QUERY: tuple[Value, Any] = (b"0", None)  # emulated devices ignore the payload

Each = Callable[["LiveEnvironment", int], None]  # called at every step with the queries sent


@dataclass(slots=True, kw_only=True)
class LiveEnvironment:
    """A running pipeline, and the data of its run so far."""

    file: PipelineFile
    kafka: KafkaConfig
    dilation: Dilation
    run: LocalRun
    began_s: float = 0.0  # inner: the start of the arrivals
    sent_s: dict[str, Any] = field(default_factory=dict)  # query id -> truth, None if unknown
    answers: list[bytes] = field(default_factory=list)  # records of the results topic
    reports: list[bytes] = field(default_factory=list)  # if workers pay for their batches
    plans: list[Plan] = field(default_factory=list)
    sizes: tuple[int, ...] = ()  # of the queries in order, if they have sizes
    taken: int = 0  # queries that the broker acknowledged
    behind_s: float = 0.0  # inner: the largest delay of a query behind its arrival time
    host_cpu_share: float | None = None  # busy fraction of all cores while queries were sent
    own_cpu_share: float | None = None  # the run's own part of it
    broker_pid: int = 0
    round_trips_s: list[float] = field(default_factory=list)  # of single records, once warm

    @property
    def now_s(self) -> float:
        """The present inner time."""
        return self.dilation.inner(time.time())

    def size_of(self, answer: Answer) -> int:
        """Return the size of an answer's query."""
        return self.sizes[number_of(answer)] if self.sizes else 1


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Yield a new folder for a broker and the roles; delete it after the block.

    After an error its logs stay, as the error may name them, but not the broker's data.
    """
    folder = Path(tempfile.mkdtemp(prefix="headrace-fidelity-"))
    try:
        yield folder
    except Exception:
        shutil.rmtree(folder / "broker" / "data", ignore_errors=True)
        say(f"the logs are in {folder}")
        raise
    except BaseException:  # such as Ctrl-C
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)


@contextlib.contextmanager
def live_environment(file: PipelineFile, policy: str, dilate: float) -> Iterator[LiveEnvironment]:
    """Yield the pipeline, running on a temporary broker under a policy; end both after the block.

    Raises the errors of ``LocalRun.start`` and ``LocalRun.await_ready``, and ``Unsuccessful`` for
    real devices with a dilation.
    """
    check_emulated(file, dilate)
    with (
        run_folder() as folder,
        temporary_broker(folder / "broker", "starting a broker for this run") as (broker, _),
        dilated(dilate, time.time()) as dilation,
    ):
        kafka = KafkaConfig(broker.bootstrap)
        with waiting("warming the broker up"):
            round_trips_s = warm_up_broker(kafka, WARM_UP_S)
        run = LocalRun(file, kafka, folder / "run")
        try:
            run.start()
            run.await_ready(ReceivedSignal())
            system = LiveEnvironment(
                file=file, kafka=kafka, dilation=dilation, run=run, broker_pid=broker.pid,
                round_trips_s=round_trips_s[len(round_trips_s) // 2 :],
            )  # fmt: skip
            if policy != file.pipeline.policy:
                with closing(Commander(kafka, file.pipeline.name)) as commander:
                    commander.apply_policy(policy)
            yield system
        finally:
            run.kill()


def check_emulated(file: PipelineFile, dilate: float) -> None:
    """Raise ``Unsuccessful`` for real devices with a dilation."""
    real = [name for name, _ in file.cluster.devices if not file.cluster.emulated(name)]
    if real and dilate != 1.0:
        raise Unsuccessful(
            f"{file.path.name} has workers on {', '.join(real)}, and only emulated devices can be "
            "dilated; leave --dilate out, or set cluster.devices to {emulated: N}"
        )


def sized(file: PipelineFile, arrivals: Recorded, seed: int) -> Recorded:
    """Return the arrivals with sizes: their own, or those of ``drawn_sizes``.

    Raises ``SizesError``.
    """
    if arrivals.sizes:
        return arrivals
    drawn = drawn_sizes(file, None, len(arrivals.times_s), np.random.default_rng([seed, 6]))
    return Recorded(arrivals.times_s, drawn)


def play(system: LiveEnvironment, queries: Recorded, each: Each, seed: int = 0) -> None:
    """Send queries (inner seconds from the start, sizes) and collect answers and plans."""
    pipeline, times_s = system.file.pipeline, queries.times_s
    system.sizes = queries.sizes
    inputs = _inputs(system.file, len(times_s), queries.sizes, seed)
    with (
        closing(Tail(system.kafka, physical(pipeline.name, RESULTS))) as tail,
        Asker(system.kafka, pipeline) as asker,
        _read_reports(system) as read,
    ):
        _send(system, times_s, inputs, asker, tail, read, each)
        asker.flush()
        system.taken = len(asker.acknowledged)
        _await_answers(system, tail)
        read()
    system.plans = published_plans(system)


def _inputs(
    file: PipelineFile, count: int, sizes: Sequence[int], seed: int
) -> Iterator[tuple[Value, Any]]:
    if all(file.cluster.emulated(name) for name, _ in file.cluster.devices):
        return cycle([UNREAD_QUERY])
    workload = load_workload(file)
    if workload is None:
        raise Unsuccessful(
            f"{file.path.name} runs real models and names no workload to ask them; add "
            "`workload: module:Class`, or emulated devices"
        )
    return cycle(inputs_of(workload, count, sizes, np.random.default_rng(seed)))


def _send(
    system: LiveEnvironment,
    times_s: Times,
    inputs: Iterator[tuple[Value, Any]],
    asker: Asker,
    tail: Tail,
    read: Callable[[], None],
    each: Each,
) -> None:
    began_s = system.began_s = system.now_s + SETTLE_S
    due_s = system.dilation.wall(began_s) + times_s * system.dilation.factor
    prefix, sent, tended_s = new_id("fidelity"), 0, 0.0
    busy = _Busy(system)
    while sent < len(due_s):
        now = time.time()
        ahead = int(np.searchsorted(due_s, now, "right"))
        if ahead > sent:
            system.behind_s = max(system.behind_s, (now - due_s[sent]) / system.dilation.factor)
        for number in range(sent, ahead):
            payload, truth = next(inputs)
            name = f"{prefix}-{number}"
            system.sent_s[name] = truth
            size = system.sizes[number] if system.sizes else 1
            asker.ask(Query(payload=payload, id=name, size=size))
        sent = ahead
        _look(system, asker, tail)
        if now - tended_s > TEND_S:
            tended_s = now
            system.run.tend()
            read()
        each(system, sent)
        if sent < len(due_s):
            time.sleep(max(0.0, min(STEP_S, due_s[sent] - time.time())))
    system.host_cpu_share, system.own_cpu_share = busy.shares()


@contextlib.contextmanager
def _read_reports(system: LiveEnvironment) -> Iterator[Callable[[], None]]:
    """Yield a function that keeps the reports so far, if workers pay for their batches.

    The topic keeps reports for minutes only, so they are read during the run.
    """
    if not own_rates(system.file, real_workers(system.file)):
        yield lambda: None
        return
    topic = physical(system.file.pipeline.name, REPORTS)
    with closing(Tail(system.kafka, topic)) as tail:
        yield lambda: system.reports.extend(tail.take(0))


def _look(system: LiveEnvironment, asker: Asker, tail: Tail) -> None:
    asker.poll()
    for reason in asker.refused.values():
        raise BrokerError(f"the broker did not take a query: {reason}")
    system.answers += tail.take(0)


def _await_answers(system: LiveEnvironment, tail: Tail) -> None:
    pipeline = system.file.pipeline
    longest_s = max(pipeline.slo_s, *pipeline.slo_classes.values(), 0.0) + pipeline.grace_s
    until_s = time.time() + longest_s * system.dilation.factor + PATIENCE_S
    while len(system.answers) < system.taken and time.time() < until_s:
        system.answers += tail.take(0.1)
    if len(system.answers) < system.taken:
        say(f"{system.taken - len(system.answers)} queries have no answer")


def published_plans(system: LiveEnvironment) -> list[Plan]:
    """Return every plan so far."""
    name = system.file.pipeline.name
    found = [decoded(m.value() or b"") for m in read_to_end(system.kafka, physical(name, PLANS))]
    return [plan for plan in found if isinstance(plan, Plan) and plan.pipeline == name]


def answers(system: LiveEnvironment) -> Iterator[Answer]:
    """Yield the answers in arrival order."""
    read = answer_reader(system.file.pipeline)
    for value in system.answers:
        yield from answers_in((value,), read)


def reports(system: LiveEnvironment) -> Iterator[Report]:
    """Yield the kept reports of all nodes of the pipeline."""
    for value in system.reports:
        found = decoded(value)
        if isinstance(found, Report) and found.pipeline == system.file.pipeline.name:
            yield found


def number_of(answer: Answer) -> int:
    """Return the number of the answer's query, from 0 in order of arrival."""
    return int(answer.id.rpartition("-")[2])


class _Busy:
    """Measures the busy fraction of all cores since its construction, and the run's own part."""

    def __init__(self, system: LiveEnvironment) -> None:
        self._system = system
        self._before = psutil.cpu_times()
        self._own = self._own_s()

    def shares(self) -> tuple[float | None, float | None]:
        used_s, every_s = cpu_used_s(self._before, psutil.cpu_times())
        if every_s <= 0:
            return None, None
        return round(used_s / every_s, 4), round((self._own_s() - self._own) / every_s, 4)

    def _own_s(self) -> float:
        """Return the CPU seconds of the broker, the roles with their children, and this process."""
        found = 0.0
        for pid in (os.getpid(), self._system.broker_pid, *self._roles()):
            with contextlib.suppress(psutil.Error):
                used = psutil.Process(pid).cpu_times()
                found += used.user + used.system
        return found

    def _roles(self) -> Iterator[int]:
        for role in self._system.run.supervisor.running:
            yield role.pid
            with contextlib.suppress(psutil.Error):
                yield from (each.pid for each in psutil.Process(role.pid).children(True))


def live_figures(
    system: LiveEnvironment, times: Times, from_s: float = 0.0, until_s: float = float("inf")
) -> Figures:
    """Return the figures of the queries that arrived from ``from_s`` until before ``until_s``.

    Times are seconds from the start of the arrivals, in the pipeline's time.
    """
    first, end = (int(np.searchsorted(times, at_s)) for at_s in (from_s, until_s))
    since_s = system.began_s + from_s
    last_s = system.began_s + min(until_s, float(times[-1]))
    metrics = RunMetrics(system.file.pipeline, accuracies(load_profile(system.file)), since_s)
    steps = StepTimes()
    for plan in sorted(system.plans, key=lambda each: each.epoch):
        if plan.issued_s <= last_s:
            metrics.plan(plan, plan.issued_s)
    for answer in answers(system):
        if first <= number_of(answer) < end:
            # CreateTime is truncated to whole ms, so the first query's may be before ``since_s``.
            counted = structs.replace(answer, created_s=max(answer.created_s, since_s))
            metrics.take(counted, given_up(counted), answer.answered_s)
            steps.take(counted)
    metrics.close(end - first)
    return figures(metrics, steps, last_s)


def run_versions() -> dict[str, str]:
    """Return the versions of everything that affects the times of a live run."""
    return {**{name: version(name) for name in LIBRARIES}, "kafka": ", ".join(ROOTS)}

"""Build running roles from the configuration: nodes, observers, driver."""

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from control.estimation.accuracy_drift import expected_of
from control.problem.seats import task_of
from headrace.client.accuracy_topic import newest_accuracy
from headrace.client.topic_clients import Tail
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile, planning_profile
from headrace.config.topology import Share, dispatcher_name
from headrace.config.user_functions import load_combine, load_scorer, load_split
from headrace.errors import NameTaken, PipelineError
from headrace.processes import run_directory
from headrace.roles.dispatching import central_queues, planned_by, task_dispatcher
from headrace.roles.heap import tune_heap
from headrace.roles.input_topic.input_commits import commits_end, input_start
from headrace.roles.input_topic.input_watch import check_input, watched_input
from headrace.roles.input_topic.recent_sizes import recent_sizes
from headrace.roles.link_file import file_links, follow_link_file
from headrace.roles.log_options import SILENT, LogOptions
from headrace.roles.namesakes import LISTEN_S, Namesakes
from headrace.roles.observability import LEVELS, observed
from headrace.roles.process_setup import dilation, process_clock, write_within_limit
from headrace.roles.profile_lookups import accuracies, latency_of
from headrace.roles.worker_models import (
    emulated_executor,
    limited,
    model_maker,
    shared_cpu,
    worker_devices,
)
from operators.dispatch.dispatcher import WINDOW
from operators.dispatch.task_dispatcher import TaskDispatcher
from operators.egress import Egress, upto_of
from operators.ingress import Ingress
from operators.input_place import InputPlaces
from operators.join import as_list
from operators.models.loading import preload
from operators.models.user_modules import forget_code
from operators.scoring.scorer import Scorer, exact_match
from operators.serving.transfers import SessionLinks
from operators.serving.worker import Worker
from profiles.measurements import EMULATED
from profiles.profile_table import ProfileTable
from schemas.effects import LABELS, OUTPUTS, QUERIES, REPORTS, RESULTS, Node
from schemas.pipeline import Pipeline
from streams.codecs.wire import origins
from streams.kafka.edge_transport import EdgeInput, EdgeTransport
from streams.kafka.egress_recovery import (
    answered_since,
    answers_from_s,
    committed_notes,
)
from streams.kafka.former_notices import await_former_notices
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.leases.egress_lease import EgressLease
from streams.kafka.preflight import prepare
from streams.kafka.topic_admin import TopicLook, partitions_of, topic_id_on
from streams.kafka.topic_settings import set_stamps
from streams.kafka.transport import KafkaTransport
from streams.live.crash_journal import CrashJournal
from streams.live.executors import ModelExecutor
from streams.live.fatal_records import FatalRecords
from streams.live.live_driver import Live
from streams.live.slot_readers import InputLog
from streams.observers.journal import tell
from streams.topics import (
    LEASE_MS,
    STAMPED_BY,
    TOO_OLD,
    Stamps,
    input_stamps,
    own_topics,
    physical,
)

if TYPE_CHECKING:
    from control.controller.controller import Controller
    from control.controller.rental import Rentable

log = logging.getLogger("headrace.role")

FENCE_S = 5.0  # an ingress or egress that stalled for longer may have been replaced
LEAVE_S = 8.0  # longest wait of an ending worker for others to take over its slots


def run_ingress(
    file: PipelineFile, kafka: KafkaConfig, share: Share, logs: LogOptions = SILENT
) -> None:
    """Serve as ingress until SIGTERM or SIGINT."""
    pipeline = file.pipeline
    prepare(kafka, pipeline, "ingress")
    queries = physical(pipeline.name, QUERIES)
    count = partitions_of(kafka, queries)
    name, incarnation = f"ingress-{share.index}", process_now()
    namesakes = namesakes_of(kafka, pipeline, (name,))
    group, mine = f"{pipeline.name}.ingress", share.mine(count)
    stamp_input(kafka, pipeline)
    namesakes.check()  # before this ingress commits anything
    topic_id = topic_id_on(kafka, queries)
    seen = TopicLook(topic_id, count)
    start = input_start(kafka, pipeline, group, mine, topic_id)
    await_former_notices(kafka, pipeline, start.upto)
    places = InputPlaces(start.upto, topic_id, start.regressed)
    node = _ingress(file, kafka, share, mine, incarnation, places)
    with (
        driver(
            pipeline,
            {name: node},
            kafka,
            group,
            logs,
            fence_s=FENCE_S,
            namesakes=namesakes,
            validates=True,
            input_log=InputLog(start.offsets, partial(check_input, kafka, queries, seen)),
        ) as live,
        commits_end(kafka, group, queries, places),
        watched_input(kafka, queries, seen, live.fail),
    ):
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)


def _ingress(
    file: PipelineFile,
    kafka: KafkaConfig,
    share: Share,
    mine: Sequence[int],
    incarnation: float,
    places: InputPlaces,
) -> Ingress:
    """Return the node that reads the partitions ``mine`` of the input topic."""
    recent = _recent(file, kafka)
    return Ingress(
        f"ingress-{share.index}", file.pipeline, mine, incarnation=incarnation,
        share=1.0 / share.of, places=places,
        dispatchers=central_queues(file, share.index, recent=recent),
        number=share.index, accuracies=_for_shadows(file), split=load_split(file.pipeline),
        recent=recent,
    )  # fmt: skip


def _recent(file: PipelineFile, kafka: KafkaConfig) -> Sequence[int]:
    """Return the newest queries' sizes, where queries have sizes."""
    sized = file.pipeline.size is not None
    return recent_sizes(kafka, file.pipeline, WINDOW) if sized else ()


def _for_shadows(file: PipelineFile) -> dict[str, float]:
    """Return the profiled accuracies, where queries are to have shadows."""
    labels = file.pipeline.labels
    return accuracies(load_profile(file)) if labels is not None and labels.shadow_share else {}


def run_dispatcher(
    file: PipelineFile, kafka: KafkaConfig, task: str, share: Share, logs: LogOptions = SILENT
) -> None:
    """Serve as a dispatcher of an inner task until SIGTERM or SIGINT.

    Raises ``PipelineError`` for a task without a dispatcher or a profile.
    """
    pipeline = file.pipeline
    dispatching = task_dispatcher(file, task, share.index)
    prepare(kafka, pipeline, "dispatcher")
    name, incarnation = dispatcher_name(task, share.index), process_now()
    namesakes = namesakes_of(kafka, pipeline, (name,))
    namesakes.check()
    node = TaskDispatcher(
        name, pipeline, task, dispatching, incarnation=incarnation, number=share.index
    )
    group = f"{pipeline.name}.dispatchers"
    with driver(
        pipeline, {name: node}, kafka, group, logs, fence_s=FENCE_S, namesakes=namesakes
    ) as live:
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)


def stamp_input(kafka: KafkaConfig, pipeline: Pipeline) -> None:
    """Let the broker stamp the input topic where the file asks for it; raise ``BrokerError``."""
    topic, stamps = physical(pipeline.name, QUERIES), input_stamps(pipeline)
    if stamps is Stamps.BROKER and not set_stamps(kafka, topic, stamps):
        raise BrokerError(
            f"deadline.clock is 'broker', but topic {topic!r} bears its producers' time stamps and "
            f"this user may not change that; run `kafka-configs --alter --topic {topic} "
            f"--add-config {STAMPED_BY}=LogAppendTime`"
        )


def run_egress(
    file: PipelineFile, kafka: KafkaConfig, share: Share, logs: LogOptions = SILENT
) -> None:
    """Serve as egress until SIGTERM or SIGINT."""
    pipeline = file.pipeline
    prepare(kafka, pipeline, "egress")
    name, incarnation = f"egress-{share.index}", process_now()
    namesakes = namesakes_of(kafka, pipeline, (name,))
    group = f"{pipeline.name}.egress"
    outputs = physical(pipeline.name, OUTPUTS)
    # Partitions beyond the file's number may hold records from before the file was changed.
    mine = share.mine(partitions_of(kafka, outputs))
    lease = _egress_lease(kafka, pipeline, name, mine)
    namesakes.check()
    lease.acquire()  # so an earlier egress of these partitions answers nothing more
    lease.settle()  # and all that it has answered can be read back
    places = committed_notes(kafka, group, outputs, mine)
    links = file_links(file)
    node = Egress(
        name,
        pipeline,
        mine,
        incarnation=incarnation,
        combine=load_combine(pipeline) or as_list,
        accuracies=accuracies(load_profile(file)),
        notes={each.slot: upto_of(each.note) for each in places},
        answered=answered_since(
            kafka, physical(pipeline.name, RESULTS), answers_from_s(places), origins(pipeline)
        ),
        links=links,
        journal=_combine_journal(pipeline, name) if pipeline.combine else None,
    )
    follow_link_file(links, pipeline.name)
    with driver(
        pipeline, {name: node}, kafka, group, logs, fence_s=FENCE_S, lease=lease, validates=True
    ) as live:
        run_until_signal(live, live.stop)


def run_scorer(file: PipelineFile, kafka: KafkaConfig, logs: LogOptions = SILENT) -> None:
    """Serve as scorer until SIGTERM or SIGINT; raise ``PipelineError`` without ``labels``."""
    pipeline = file.pipeline
    labels = pipeline.labels
    if labels is None:
        raise PipelineError(
            f"{file.path}: there is nothing to score: no labels are expected; add a line such as: "
            "labels: {scorer: package.module:function}"
        )
    prepare(kafka, pipeline, "scorer")
    name, incarnation, profile = "scorer", process_now(), load_profile(file)
    namesakes = namesakes_of(kafka, pipeline, (name,))
    namesakes.check()
    node = Scorer(
        name,
        pipeline,
        labels,
        load_scorer(labels) or exact_match,
        incarnation=incarnation,
        answer_slots=range(partitions_of(kafka, physical(pipeline.name, RESULTS))),
        label_slots=range(partitions_of(kafka, physical(pipeline.name, LABELS))),
        earlier=newest_accuracy(kafka, pipeline.name),
        shadow_slots=(0,) if labels.shadow_share else (),
        combine=load_combine(pipeline) or as_list,
        accuracies=accuracies(profile),
        expected=partial(expected_of, profile),
    )
    with driver(
        pipeline, {name: node}, kafka, f"{pipeline.name}.scorer", logs, namesakes=namesakes
    ) as live:
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)


def _egress_lease(
    kafka: KafkaConfig, pipeline: Pipeline, name: str, mine: Sequence[int]
) -> EgressLease:
    """Return a lease to acquire; raise ``NameTaken`` if a living egress holds one of ``mine``."""
    lease = EgressLease(kafka, pipeline.name, mine, name)
    other = lease.living_holder()
    if other:
        lease.end(confirmed=False)
        raise NameTaken(
            f"partitions of {physical(pipeline.name, OUTPUTS)} are leased to {other}; two egresses "
            "would answer every query twice: end the other, or give this one a share of its own "
            "(--share)"
        )
    lease.fenced = set_stamps(kafka, physical(pipeline.name, RESULTS), Stamps.LEASE)
    if not lease.fenced:
        _warn_unfenced(pipeline)
    return lease


def _warn_unfenced(pipeline: Pipeline) -> None:
    topic = physical(pipeline.name, RESULTS)
    tell(
        log, LEVELS["results.unfenced"], "results.unfenced",
        f"topic {topic} takes answers of any age, and this user may not change that: an egress "
        f"that was replaced may answer again; run `kafka-configs --alter --topic {topic} "
        f"--add-config {TOO_OLD}={LEASE_MS}`",
        pipeline=pipeline.name, topic=topic,
    )  # fmt: skip


def run_worker(
    file: PipelineFile,
    kafka: KafkaConfig,
    name: str,
    device: str,
    count: int = 1,
    seed: int = 0,
    logs: LogOptions = SILENT,
) -> None:
    """Serve as a worker until SIGTERM or SIGINT; ``count`` workers share the process: emulated
    ones, or those that share a device."""
    pipeline = file.pipeline
    prepare(kafka, pipeline, "worker")
    devices = worker_devices(file, name, device, count)
    names = list(devices)
    incarnation, namesakes = process_now(), namesakes_of(kafka, pipeline, names)
    profile = planning_profile(file)
    journals: dict[str, CrashJournal] = {}
    if file.cluster.host_device(devices[names[0]]) != EMULATED:
        preload_operators(pipeline, devices)
        journals = {each: crash_journal(pipeline, each) for each in names}
    links = file_links(file)
    nodes = workers(file, devices, device, incarnation, profile, journals, links)
    namesakes.check()
    follow_link_file(links, pipeline.name)
    group = f"{pipeline.name}.workers"
    with driver(pipeline, nodes, kafka, group, logs, role=name, namesakes=namesakes) as live:
        attach(live, file, profile, devices, seed, journals)
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, lambda: live.leave(LEAVE_S / dilation().factor))


def workers(
    file: PipelineFile,
    devices: Mapping[str, str],
    device: str,
    incarnation: float,
    profile: ProfileTable,
    journals: Mapping[str, CrashJournal],
    links: SessionLinks | None,
) -> dict[str, Worker]:
    """Return the workers of one process by name; ``devices`` has the device that each reports."""
    latency, planned = latency_of(profile, device), latency_of(profile, device, "p95")
    return {
        each: Worker(
            each, file.pipeline, reported, incarnation=incarnation, latency=latency,
            planned=planned, strikes=journals[each].strikes if journals else None, links=links,
        )
        for each, reported in devices.items()
    }  # fmt: skip


def preload_operators(pipeline: Pipeline, devices: Mapping[str, str]) -> None:
    """Import the libraries of the operators that these devices may run, before any of them runs."""
    tasks = {task_of(reported) for reported in devices.values()}
    served = [t for t in pipeline.tasks if t.name in tasks or "" in tasks]
    preload(v for task in served for v in task.variants if not limited(v))


def attach(
    live: Live,
    file: PipelineFile,
    profile: ProfileTable,
    devices: Mapping[str, str],
    seed: int,
    journals: Mapping[str, CrashJournal],
) -> None:
    cpu = shared_cpu(file, file.cluster.host_device(next(iter(devices.values()))), len(devices))
    for number, (each, device) in enumerate(devices.items()):
        host = file.cluster.host_device(device)
        if host == EMULATED:
            rng = np.random.default_rng([seed, number])
            executor = emulated_executor(live, each, file.pipeline, profile, rng, device)
            live.attach(each, executor)
        else:
            make = model_maker(file, device, cpu, number)
            running = ModelExecutor(
                make, host, live.post(each), process_clock, journals[each], forget_code
            )
            live.attach(each, running)


def crash_journal(pipeline: Pipeline, name: str) -> CrashJournal:
    """Return the journal of what ran when an earlier process of this name died."""
    return CrashJournal(run_directory(pipeline.name) / f"{name}.running.json")


def _combine_journal(pipeline: Pipeline, name: str) -> CrashJournal | None:
    """Return egress' journal; log a line and return None if the disk takes no file."""
    try:
        return crash_journal(pipeline, name)
    except OSError as error:
        text = (
            f"crashes and hangs of `combine` are not counted, since the disk takes no file: {error}"
        )
        tell(log, LEVELS["journal.off"], "journal.off", text, pipeline=pipeline.name)
        return None


def controller_maker(
    file: PipelineFile, rentable: "Rentable | None" = None
) -> "Callable[[], Controller]":
    """Return a factory of controllers that plan with the file's cluster and profiles, and rent
    devices if they may.

    Errors in the profiles are raised by this call, not by the factory.
    """
    from control.controller.controller import Controller  # no other role needs the planners

    profile = planning_profile(file)
    known = planned_by(file, profile) if profile.entries else None
    workers = sum(count for _, count in file.cluster.devices)
    memory = dict(file.cluster.memory)
    return partial(
        Controller, file.pipeline, known, workers, memory,
        file.sessions, rentable,
    )  # fmt: skip


def namesakes_of(kafka: KafkaConfig, pipeline: Pipeline, names: Sequence[str]) -> Namesakes:
    reports = partial(Tail, kafka, physical(pipeline.name, REPORTS))
    return Namesakes(reports, pipeline.name, names, dilation().factor)


@contextlib.contextmanager
def driver(
    pipeline: Pipeline,
    nodes: Mapping[str, Node],
    kafka: KafkaConfig,
    group: str,
    logs: LogOptions,
    *,
    role: str = "",
    fence_s: float | None = None,
    lease: EgressLease | None = None,
    namesakes: Namesakes | None = None,
    validates: bool = False,
    input_log: InputLog | None = None,
    source: EdgeInput | None = None,
) -> Iterator[Live]:
    how = dilation()
    transport = (
        KafkaTransport(kafka, group, lease, validates=validates)
        if source is None
        else EdgeTransport(kafka, group, source)
    )
    transport.warm(own_topics(pipeline))
    if namesakes is not None:
        transport.notice_silence(LISTEN_S * how.factor, namesakes.look_again)
    named = role or ", ".join(nodes)
    with observed(named, pipeline, logs, transport) as observers:
        yield Live(
            pipeline,
            nodes,
            how.transport(transport),
            clock=how.clock(process_clock),
            inbox=how.inbox(),
            observers=observers,
            fence_s=fence_s,
            fatal=FatalRecords(run_directory(pipeline.name) / f"{named}.fatal-records.json"),
            write_as=write_within_limit(),
            input_log=input_log,
        )


def process_now() -> float:
    return dilation().inner(process_clock())


def run_until_signal(live: Live, end: Callable[[], None]) -> None:
    """Run until SIGTERM, which ends the role gracefully, or SIGINT, which ends it at once."""
    signal.signal(signal.SIGTERM, lambda *_: end())
    signal.signal(signal.SIGINT, lambda *_: live.stop())
    tune_heap()
    live.run()

"""The ingress at the edge: one process with an ingress and a session's own device.

It reads a session's inputs at their source, runs the tasks that the session's plan places on the
device, and sends their outputs on.
"""

from dataclasses import dataclass
from functools import partial

from control.problem.seats import SESSION_ID, bound_device
from headrace.config.cluster import TierDevices
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.config.topology import Share
from headrace.config.user_functions import load_split
from headrace.errors import PipelineError
from headrace.roles.ingress_role import stamp_input
from headrace.roles.input_topic.input_commits import commits_end, input_start
from headrace.roles.input_topic.input_watch import check_input, restore_input, watched_input
from headrace.roles.link_file import file_links, follow_link_file
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import tell_idle
from headrace.roles.process_setup import dilation
from headrace.roles.role_process import (
    FENCE_S,
    crash_journal,
    driver,
    namesakes_of,
    process_now,
    run_until_signal,
)
from headrace.roles.workers.worker_role import LEAVE_S, attach, preload_operators, worker_nodes
from operators.edge.edge_nodes import edge_nodes
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces
from schemas.effects import QUERIES
from streams.kafka.admin.preflight import prepare, prepare_input
from streams.kafka.admin.topic_admin import TopicLook, partitions_of, topic_id_on
from streams.kafka.edge_transport import (
    MOST_SITES,
    SITE_PARTITIONS,
    EdgeInput,
    EdgeTransport,
    first_partition,
    shifted,
)
from streams.kafka.former_notices import await_former_notices
from streams.kafka.kafka_config import KafkaConfig
from streams.live.slot_readers import InputLog
from streams.topics import physical


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The place of an ingress: the session's own tier, and the broker of its input.

    ``source`` None: the input is a share of the central topic. ``site`` numbers the brokers of
    inputs, from 1.
    """

    tier: str
    session: str
    source: KafkaConfig | None = None
    site: int = 0

    @property
    def device(self) -> str:
        """The name of the session's device."""
        return bound_device(self.tier, self.session)


def edge_tier(file: PipelineFile, edge: Edge) -> TierDevices:
    """Return the tier of an edge; raise ``PipelineError`` if no ingress can stand there."""
    space, root = file.sessions, file.pipeline.root.name
    if space is None:
        raise PipelineError(
            f"{file.path}: --tier {edge.tier}: the cluster has no tiers; add cluster.tiers, or "
            "start ingress without --tier"
        )
    tier = file.cluster.tier(edge.tier)
    if tier is None:
        known = ", ".join(each.name for each in file.cluster.tiers)
        raise PipelineError(
            f"{file.path}: --tier {edge.tier}: there is no such tier; the file has: {known}"
        )
    if not tier.tasks:
        raise PipelineError(
            f"{file.path}: --tier {edge.tier}: no task may run on it (tasks.<task>.tiers), so an "
            "ingress there has nothing to run; start it without --tier"
        )
    if root not in tier.tasks:
        raise PipelineError(
            f"{file.path}: --tier {edge.tier}: the first task {root!r} may not run on it "
            f"(tasks.{root}.tiers), so no plan begins there; start ingress without --tier"
        )
    if not space.tiers[edge.tier].own:
        raise PipelineError(
            f"{file.path}: --tier {edge.tier}: sessions share its devices, and an ingress at the "
            "edge is one session's; name a tier with `per: session`"
        )
    if not SESSION_ID.fullmatch(edge.session):
        raise PipelineError(
            f"{edge.session!r} is no id of a session; write up to 64 letters, digits, '.', '_' or "
            "'-', as in --session cam-17"
        )
    _check_site(edge)
    return tier


def _check_site(edge: Edge) -> None:
    if edge.source is not None and not 1 <= edge.site <= MOST_SITES:
        raise PipelineError(
            f"--input needs the number of its site, from 1 to {MOST_SITES}: queries are numbered "
            "by it, so give every broker of inputs its own and never another one (--site 1)"
        )
    if edge.source is None and edge.site:
        raise PipelineError(
            f"--site {edge.site} numbers a broker of inputs, and there is none; add "
            "--input HOST:PORT"
        )


def run_edge_ingress(
    file: PipelineFile,
    kafka: KafkaConfig,
    edge: Edge,
    share: Share,
    logs: LogOptions,
) -> None:
    """Serve as the ingress of a session's device until SIGTERM or SIGINT."""
    tier, pipeline = edge_tier(file, edge), file.pipeline
    prepare(kafka, pipeline, "ingress", "worker")
    name, incarnation = f"ingress-{edge.device}", process_now()
    devices = tier.seats(edge.device)
    namesakes = namesakes_of(kafka, pipeline, (name, *devices))
    source = _source(file, kafka, edge)
    seen = _seen(source)
    profile, links = planning_profile(file), file_links(file)
    preload_operators(pipeline, devices)
    journals = {each: crash_journal(pipeline, each) for each in devices}
    namesakes.check()  # before this ingress commits anything
    tell_idle(name, pipeline.name, source.topic, share, seen.partitions)
    places, log, mine = _places(file, kafka, source, share.mine(seen.partitions), seen)
    ingress = Ingress(
        name, pipeline, mine, incarnation=incarnation, share=share.part(seen.partitions),
        places=places, split=load_split(pipeline),
    )  # fmt: skip
    beside = worker_nodes(file, devices, tier.name, incarnation, profile, journals, links)
    nodes = edge_nodes(ingress, name, places, beside, pipeline, edge.session)
    follow_link_file(links, pipeline.name)
    with (
        driver(
            pipeline, nodes, EdgeTransport(kafka, f"{pipeline.name}.workers", source), logs,
            role=name, fence_s=FENCE_S, namesakes=namesakes, input_log=log,
        ) as live,
        commits_end(source.kafka, source.group, source.topic, places, source.first),
        watched_input(
            source.kafka, source.topic, seen, live.fail,
            restore=partial(restore_input, source.kafka, pipeline),
        ),
    ):  # fmt: skip
        attach(live, file, profile, devices, 0, journals)
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, lambda: live.leave(LEAVE_S / dilation().factor))


def _source(file: PipelineFile, kafka: KafkaConfig, edge: Edge) -> EdgeInput:
    """Return the input, once it exists and its records are stamped as the file requires."""
    pipeline, first = file.pipeline, first_partition(edge.site)
    if edge.source is not None:
        prepare_input(edge.source, pipeline)
    there, group = edge.source or kafka, f"{pipeline.name}.ingress"
    stamp_input(there, pipeline)
    return EdgeInput(there, physical(pipeline.name, QUERIES), group, first)


def _seen(source: EdgeInput) -> TopicLook:
    count = partitions_of(source.kafka, source.topic)
    return TopicLook(topic_id_on(source.kafka, source.topic), count)


def _places(
    file: PipelineFile,
    kafka: KafkaConfig,
    source: EdgeInput,
    mine: tuple[int, ...],
    seen: TopicLook,
) -> tuple[InputPlaces, InputLog, list[int]]:
    """Return the ingress's start places, the log that it reads, and its partitions by their numbers
    outside the input's broker."""
    if seen.partitions > SITE_PARTITIONS:
        raise PipelineError(
            f"topic {source.topic!r} has {seen.partitions} partitions; an ingress at the edge "
            f"takes up to {SITE_PARTITIONS}"
        )
    start = input_start(
        kafka, file.pipeline, source.group, mine, seen.id, source=source.kafka, first=source.first
    )
    upto = shifted(start.upto, source.first)
    await_former_notices(kafka, file.pipeline, upto)
    check = partial(check_input, source.kafka, source.topic, seen)
    log = InputLog(shifted(start.offsets, source.first), check)
    places = InputPlaces(upto, seen.id, start.regressed)
    return places, log, [source.first + p for p in mine]

"""Ingress as a process."""

from collections.abc import Sequence
from functools import partial

from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile
from headrace.config.topology import Share
from headrace.config.user_functions import load_split
from headrace.roles.dispatching import central_queues, ingress_part
from headrace.roles.input_topic.input_commits import commits_end, input_start
from headrace.roles.input_topic.input_watch import check_input, restore_input, watched_input
from headrace.roles.input_topic.recent_sizes import recent_sizes
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import tell_idle
from headrace.roles.profile_lookups import accuracies
from headrace.roles.role_process import FENCE_S, driver, namesakes_of, process_now, run_until_signal
from operators.dispatch.device_costs import WINDOW
from operators.ingress.ingress import Ingress
from operators.input_place import InputPlaces
from schemas.effects import QUERIES
from schemas.pipeline import Pipeline
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_admin import TopicLook, partitions_of, topic_id_on
from streams.kafka.admin.topic_settings import set_stamps
from streams.kafka.former_notices import await_former_notices
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.transport import KafkaTransport
from streams.live.slot_readers import InputLog
from streams.topics import STAMPED_BY, Stamps, input_stamps, physical


def run_ingress(file: PipelineFile, kafka: KafkaConfig, share: Share, logs: LogOptions) -> None:
    """Serve as ingress until SIGTERM or SIGINT."""
    pipeline = file.pipeline
    prepare(kafka, pipeline, "ingress")
    queries = physical(pipeline.name, QUERIES)
    count = partitions_of(kafka, queries)
    name, incarnation = f"ingress-{share.index}", process_now()
    namesakes = namesakes_of(kafka, pipeline, (name,))
    group, mine = f"{pipeline.name}.ingress", share.mine(count)
    tell_idle(name, pipeline.name, queries, share, count)
    stamp_input(kafka, pipeline)
    namesakes.check()  # before this ingress commits anything
    topic_id = topic_id_on(kafka, queries)
    seen = TopicLook(topic_id, count)
    start = input_start(kafka, pipeline, group, mine, topic_id)
    await_former_notices(kafka, pipeline, start.upto)
    places = InputPlaces(start.upto, topic_id, start.regressed)
    node = _ingress(file, kafka, share, count, incarnation, places)
    with (
        driver(
            pipeline,
            {name: node},
            KafkaTransport(kafka, group, validates=True),
            logs,
            fence_s=FENCE_S,
            namesakes=namesakes,
            input_log=InputLog(start.offsets, partial(check_input, kafka, queries, seen)),
        ) as live,
        commits_end(kafka, group, queries, places),
        watched_input(
            kafka, queries, seen, live.fail, restore=partial(restore_input, kafka, pipeline)
        ),
    ):
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)


def _ingress(
    file: PipelineFile,
    kafka: KafkaConfig,
    share: Share,
    count: int,
    incarnation: float,
    places: InputPlaces,
) -> Ingress:
    """Return the node that reads its share of the input topic's ``count`` partitions."""
    recent = _recent(file, kafka)
    return Ingress(
        f"ingress-{share.index}", file.pipeline, share.mine(count), incarnation=incarnation,
        share=share.part(count), places=places,
        dispatchers=central_queues(file, ingress_part(share, count), recent=recent),
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


def stamp_input(kafka: KafkaConfig, pipeline: Pipeline) -> None:
    """Let the broker stamp the input topic where the file asks for it; raise ``BrokerError``."""
    topic, stamps = physical(pipeline.name, QUERIES), input_stamps(pipeline)
    if stamps is Stamps.BROKER and not set_stamps(kafka, topic, stamps):
        raise BrokerError(
            f"deadline.clock is 'broker', but topic {topic!r} bears its producers' time stamps and "
            f"this user may not change that; run `kafka-configs --alter --topic {topic} "
            f"--add-config {STAMPED_BY}=LogAppendTime`"
        )

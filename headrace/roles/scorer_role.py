"""The scorer as a process."""

from functools import partial

from control.estimation.accuracy.accuracy_drift import expected_of
from headrace.client.accuracy_topic import newest_accuracy
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import load_profile
from headrace.config.user_functions import load_combine, load_scorer
from headrace.errors import PipelineError
from headrace.roles.input_topic.input_watch import watched_input
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.profile_lookups import accuracies
from headrace.roles.role_process import driver, namesakes_of, process_now, run_until_signal
from operators.join import as_list
from operators.scoring.scorer import Scorer, exact_match
from schemas.effects import LABELS, RESULTS
from streams.kafka.admin.preflight import prepare
from streams.kafka.admin.topic_admin import TopicLook, partitions_of
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport
from streams.topics import physical


def run_scorer(file: PipelineFile, kafka: KafkaConfig, logs: LogOptions) -> None:
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
    results = physical(pipeline.name, RESULTS)
    count = partitions_of(kafka, results)
    node = Scorer(
        name,
        pipeline,
        labels,
        load_scorer(labels) or exact_match,
        incarnation=incarnation,
        answer_slots=range(count),
        label_slots=range(partitions_of(kafka, physical(pipeline.name, LABELS))),
        earlier=newest_accuracy(kafka, pipeline.name),
        shadow_slots=(0,) if labels.shadow_share else (),
        combine=load_combine(pipeline) or as_list,
        accuracies=accuracies(profile),
        expected=partial(expected_of, profile),
    )
    transport = KafkaTransport(kafka, f"{pipeline.name}.scorer")
    with (
        driver(pipeline, {name: node}, transport, logs, namesakes=namesakes) as live,
        watched_input(kafka, results, TopicLook("", count), live.fail),
    ):
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)

"""The dispatcher of an inner task as a process."""

from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import Share, dispatcher_name
from headrace.roles.dispatching import task_dispatcher
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.role_process import FENCE_S, driver, namesakes_of, process_now, run_until_signal
from operators.dispatch.task_dispatcher import TaskDispatcher
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.transport import KafkaTransport


def run_dispatcher(
    file: PipelineFile, kafka: KafkaConfig, task: str, share: Share, logs: LogOptions
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
    transport = KafkaTransport(kafka, f"{pipeline.name}.dispatchers")
    with driver(
        pipeline, {name: node}, transport, logs, fence_s=FENCE_S, namesakes=namesakes
    ) as live:
        namesakes.watch(incarnation, live.fail)
        run_until_signal(live, live.stop)

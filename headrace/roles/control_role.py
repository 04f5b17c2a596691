"""The control app as a process, and the factory of its controllers."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from control.controller.controller import Controller
from headrace.config.cluster_cost import prices
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import measured_space, planning_profile
from headrace.roles.dispatching import planned_by
from headrace.roles.heap import tune_heap
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import observed
from headrace.roles.process_setup import dilation, process_clock, write_within_limit
from streams.kafka.kafka_config import KafkaConfig

if TYPE_CHECKING:
    from control.controller.rental import Rentable  # it loads the solvers


def controller_maker(
    file: PipelineFile, rentable: "Rentable | None" = None
) -> Callable[[], Controller]:
    """Return a factory of controllers that plan with the file's cluster and profiles, and rent
    devices if they may.

    Errors in the profiles are raised by this call, not by the factory.
    """
    profile = planning_profile(file)
    known = planned_by(file, profile) if profile.entries else None
    workers = sum(count for _, count in file.cluster.devices)
    memory = dict(file.cluster.memory)
    sessions = None if file.sessions is None else measured_space(file, profile)
    return partial(Controller, file.pipeline, known, workers, memory, sessions, rentable)


def run_control(
    file: PipelineFile,
    kafka: KafkaConfig,
    logs: LogOptions,
    rentable: "Rentable | None",
) -> None:
    """Run the control app until SIGTERM or SIGINT."""
    from streams.control_app.app import run_control_app  # simulations do without Faust

    fresh = controller_maker(file, rentable)
    tune_heap()
    with observed("control", file.pipeline, logs, prices=prices(file.cluster)) as observers:
        run_control_app(
            file.pipeline, fresh, kafka, observers, dilation(), process_clock, write_within_limit()
        )  # fmt: skip

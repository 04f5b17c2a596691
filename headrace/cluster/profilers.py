"""Run profilers of a pipeline as processes of this command."""

import contextlib
from collections.abc import Callable, Iterator

from headrace.cluster.supervisor import Supervisor
from headrace.config.pipeline_file import PipelineFile
from headrace.config.topology import profilers as profiler_roles
from headrace.processes import Process, run_directory


@contextlib.contextmanager
def profilers(
    file: PipelineFile, bootstrap: str, count: int, said: Callable[[str], None]
) -> Iterator[tuple[Callable[[], None], Callable[[], tuple[Process, ...]]]]:
    """Run ``count`` profilers within the block; yield two functions.

    The first restarts ended profilers: call it a few times a second; it raises ``Unsuccessful``
    for one that can never run. The second returns the running processes.
    """
    directory = run_directory(file.pipeline.name)
    supervisor = Supervisor(file.path, bootstrap, directory, said)
    supervisor.start(profiler_roles(count, "search-profiler"))  # `up` may run others
    try:
        yield supervisor.tend, lambda: supervisor.running
    finally:
        supervisor.stop_all("profiler")

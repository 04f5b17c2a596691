"""The pipeline that a file names, also if the file has become wrong since `headrace up` read it.

Most commands on a running pipeline need its name only; a typo must not keep them from it.
"""

from dataclasses import dataclass
from pathlib import Path

from headrace.cluster.run_state import run_of
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import PipelineError
from headrace.processes import run_directory
from headrace.terminal import say


@dataclass(frozen=True, slots=True)
class NamedPipeline:
    """A pipeline by name; ``file`` None: its file is wrong, and it runs on this machine."""

    name: str
    file: PipelineFile | None = None


def named_pipeline(path: Path) -> NamedPipeline:
    """Return the pipeline of a file; of a wrong one, that which was started with it here.

    Raises ``PipelineError`` for a wrong file that nothing on this machine was started with.
    """
    try:
        file = read_pipeline_file(path)
    except PipelineError as error:
        run = run_of(path, run_directory("any").parent)
        if run is None:
            raise
        say(f"headrace: {error}")
        say(f"headrace: going by {run.pipeline}, which runs here by the file as it was")
        return NamedPipeline(run.pipeline)
    return NamedPipeline(file.pipeline.name, file)

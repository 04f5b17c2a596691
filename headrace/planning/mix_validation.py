"""Validate a pipeline file with the mix of device types that its budget affords."""

from dataclasses import replace

from headrace.config.pipeline_file import PipelineFile
from headrace.config.validation import Examined, examined
from headrace.errors import Unfeasible
from headrace.planning.device_mix import with_workers


def examined_with_mix(file: PipelineFile) -> Examined:
    """Return what ``examined`` finds for the file's workers, those of its picked mix included.

    A budget or an SLO for which there is no mix makes the file's policy infeasible. Raises as
    ``examined`` does, and ``PlanError`` for types that cannot be planned with.
    """
    try:
        there = with_workers(file)
    except Unfeasible as error:
        return replace(examined(file), infeasible={file.pipeline.policy: str(error)})
    return examined(there)

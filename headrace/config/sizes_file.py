"""Read the distribution of query sizes that the pipeline file or the command line names."""

from pathlib import Path

from control.policies.kairos.query_sizes import SizeDistribution, SizesError, parsed_sizes
from control.problem.problem import PlanError
from headrace.config.pipeline_file import PipelineFile


def read_sizes(file: PipelineFile, named: Path | None = None) -> tuple[SizeDistribution, str]:
    """Return the distribution of query sizes and its source; size 1 for a pipeline without sizes.

    Raises ``SizesError`` for an invalid file, and ``PlanError`` if none is named.
    """
    path = named or file.sizes
    if path is None:
        if file.pipeline.size is None:
            return SizeDistribution((1,), (1.0,)), "every query has size 1"
        raise PlanError(
            "nothing says how large queries are; name a CSV of size,probability with --sizes or "
            "a line sizes: FILE.csv"
        )
    try:
        return parsed_sizes(path.read_text(encoding="utf-8-sig"), str(path)), path.name
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SizesError(f"the sizes {path} cannot be read ({why}); name another file") from error


def size_distribution(file: PipelineFile) -> SizeDistribution | None:
    """Return the distribution that the file names, None without one.

    Raises ``SizesError`` for an invalid file.
    """
    if file.sizes is None or file.pipeline.size is None:
        return None
    return read_sizes(file)[0]

"""The profiles that a pipeline file names, checked against its operators and weights."""

from dataclasses import replace
from pathlib import Path

from control.problem.session_space import SessionSpace
from headrace.config.pipeline_file import PipelineFile, search_space, weights_sha256
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import check_intact
from profiles.measurements import Entry, ProfileError
from profiles.profile_json import parsed_profile
from profiles.profile_table import ProfileTable
from schemas.pipeline import Variant


def load_profile(file: PipelineFile) -> ProfileTable:
    """Return the file's profiles as measured, in one table; an empty table without profiles.

    Planning and emulation use ``planning_profile`` instead. Raises ``PipelineError`` for a missing
    or malformed profile, for one measured with another operator or other weights than the
    file's, and for a model that is not the one in the lock.
    """
    for model in file.models:
        check_intact(model, file.path)
    mend = f"run `headrace profile {file.path.name}`"
    table = ProfileTable(file.pipeline.name, ())
    for path in file.profiles:
        absent = f"{file.path}: the profile {path.name} is not there; {mend}"
        read = read_profile(path, absent)
        try:
            table = table.merge(read) if table.entries else read
        except ProfileError as error:
            raise PipelineError(f"{path}: {error}") from error
    check_measured(file, table)
    return table


def read_profile(path: Path, absent: str) -> ProfileTable:
    """Return a profile from disk; raises ``PipelineError``, with ``absent`` for a missing file."""
    try:
        return parsed_profile(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PipelineError(absent) from error
    except (ProfileError, OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{path}: {error}") from error


def check_measured(file: PipelineFile, table: ProfileTable) -> None:
    """Raise ``PipelineError`` for an entry whose operator or weights differ from the file's."""
    mend = f"run `headrace profile {file.path.name}`"
    variants = {(v.task, v.name): v for task in file.pipeline.tasks for v in task.variants}
    hashes = {key: weights_sha256(variant) for key, variant in variants.items()}
    for entry in table.entries:
        key = (entry.task, entry.variant)
        if key in variants:
            _check_measured(entry, variants[key], hashes[key], mend)


def planning_profile(file: PipelineFile) -> ProfileTable:
    """Return the profile scaled to a worker's share of its device's time.

    Every role that plans, drops or emulates by latencies uses this profile. Raises as
    ``load_profile`` does.
    """
    return load_profile(file).at_share(file.cluster.share)


def measured_space(file: PipelineFile, profile: ProfileTable) -> SessionSpace:
    """Return the file's space of query plans with the memory of the profiled variants: the largest
    over the devices on which a variant was measured. Raises as ``search_space`` does."""
    memory: dict[str, float] = {}
    for entry in profile.entries:
        memory[entry.key] = max(memory.get(entry.key, 0.0), entry.memory_bytes)
    return replace(search_space(file), memory=memory)


def _check_measured(entry: Entry, variant: Variant, sha256: str, mend: str) -> None:
    if entry.operator != variant.operator:
        raise PipelineError(
            f"the profile of {entry.name} was measured with the operator {entry.operator}, but "
            f"the pipeline file names {variant.operator}; {mend}"
        )
    if entry.weights_sha256 != sha256:
        raise PipelineError(
            f"the profile of {entry.name} was measured with other weights (SHA-256 "
            f"{entry.weights_sha256[:12] or 'none'}, found {sha256[:12] or 'none'}); {mend}"
        )

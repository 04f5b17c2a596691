"""Override the cluster or the SLO of a pipeline file in memory, for simulations and capacity."""

from collections.abc import Mapping
from dataclasses import replace

from headrace.config.field_types import is_device
from headrace.config.pipeline_file import PipelineFile
from headrace.config.yaml_source import suggestion
from headrace.errors import PipelineError

Devices = int | Mapping[str, int] | None


def overridden(
    file: PipelineFile,
    devices: Devices = None,
    slo_s: float | None = None,
    share: float | None = None,
) -> PipelineFile:
    """Return the file with the given workers, by device or of its only device, this SLO, and this
    share of the devices' time.

    Raises ``PipelineError`` for a number that is not above 0, for a share above 1, for a name that
    is no device, and for a bare number of devices if the cluster has several kinds.
    """
    if share is not None:
        if not 0 < share <= 1:
            raise PipelineError(f"the share is {share:g}; it must be above 0 and at most 1")
        parts = file.cluster.tasks_per_device
        file = replace(file, cluster=replace(file.cluster, share=share / parts))
    if devices is not None:
        counts = _counts(file, devices)
        file = replace(file, cluster=replace(file.cluster, devices=counts))
    if slo_s is not None:
        if not slo_s > 0:
            raise PipelineError(f"the SLO is {slo_s:g} s; it must be above 0")
        file = replace(file, pipeline=replace(file.pipeline, slo_s=slo_s))
    return file


def _counts(file: PipelineFile, devices: int | Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    there = file.cluster.devices
    if isinstance(devices, int):
        if len(there) != 1:
            names = ", ".join(device for device, _ in there)
            raise PipelineError(f"{devices} devices of which kind? name them, as in {names}=2")
        devices = {there[0][0]: devices}
    known = [*dict(there), *(each.name for each in file.cluster.types)]
    for name, count in devices.items():
        if name not in known and not is_device(name):
            raise PipelineError(f"{name!r} is no device; {suggestion(name, known)}")
        if count < 1:
            raise PipelineError(f"{count} devices {name!r} serve nothing; name 1 or more")
    return tuple((name, count * file.cluster.tasks_per_device) for name, count in devices.items())


def parsed_classes(text: str) -> tuple[tuple[str, float], ...]:
    """Parse parts of the queries by SLO class, "gold=0.2,bulk=0.5"; raise ``PipelineError``."""
    try:
        pairs = [part.partition("=") for part in text.split(",")]
        found = tuple((name.strip(), float(part)) for name, _, part in pairs)
    except ValueError:
        found = (("", -1.0),)
    if not all(0.0 <= part <= 1.0 for _, part in found) or sum(p for _, p in found) > 1.0 + 1e-9:
        raise PipelineError(
            f"{text!r} are no parts of the queries; write gold=0.2,bulk=0.5, at most 1 in all"
        )
    return found


def known_classes(
    file: PipelineFile, classes: tuple[tuple[str, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Return the classes; raise ``PipelineError`` for one that the pipeline file does not have."""
    known = file.pipeline.slo_classes
    for name, _ in classes:
        if name not in known:
            raise PipelineError(
                f"no SLO class {name!r}; {file.path} has {', '.join(sorted(known)) or 'none'}"
            )
    return classes


def parsed_devices(text: str) -> int | dict[str, int]:
    """Parse devices written as "8" or "cpu=4,cuda:0=2"; raise ``PipelineError`` for other text."""
    try:
        if "=" not in text:
            return int(text)
        parts = [part.rpartition("=") for part in text.split(",")]
        found = {name.strip(): int(count) for name, _, count in parts}
    except ValueError:
        raise PipelineError(
            f"{text!r} is no number of devices; write 8, or cpu=4,cuda:0=2"
        ) from None
    if len(found) < len(parts):
        raise PipelineError(f"{text!r} names a device twice; write the sum of both")
    return found

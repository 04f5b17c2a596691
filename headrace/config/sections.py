"""What may a pipeline file say? Its keys and types, and one sentence for the first that is wrong.

What only shows when several places are looked at together is in ``headrace/config/checks.py``.
"""

import re
import reprlib
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from headrace.config.yaml_source import PipelineError, Place, Source, nearest

UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
SIZES = {"MB": 1e6, "GB": 1e9, "MiB": 2.0**20, "GiB": 2.0**30}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) ?([^\d\s.]*)")
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_DEVICE = re.compile(r"cpu|emulated|cuda:\d+")
_SPEC = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def duration(value: Any) -> float:
    """Seconds of a text such as "300ms"; raises ``ValueError`` naming the units."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"{{}} is {value} without a unit; write {value}ms or {value}s")
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{{}} is {value!r}, which is no duration; write one such as 300ms")
    number, unit = match.groups()
    if unit == "":
        raise ValueError(f"{{}} is {value!r} without a unit; write {number}ms or {number}s")
    if unit not in UNITS:
        raise ValueError(f"{{}} is {value!r}, but {unit!r} is no unit here; use us, ms or s")
    return float(number) * UNITS[unit]


def size(value: Any) -> int:
    """Bytes of a text such as "512MB"; raises ``ValueError`` naming the units."""
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match.group(2) not in SIZES:
        raise ValueError(f"{{}} is {value!r}, which is no size; write one such as 512MB or 2GB")
    return int(float(match.group(1)) * SIZES[match.group(2)])


def _above_zero(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("{} is 0; it must be above 0")
    return seconds


def _share(value: float) -> float:
    if not 0 < value <= 1:
        raise ValueError(f"{{}} is {value:g}; it must be above 0 and at most 1")
    return value


def _port(value: int) -> int:
    if not 0 <= value <= 65535:
        raise ValueError(f"{{}} is {value}; it must be a port, 1 to 65535, or 0 for any free one")
    return value


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", value):
        raise ValueError(f"{{}}: the name {value!r} may hold letters, digits, '-' and '_' only")
    return value


def _pipeline_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", value):
        raise ValueError(f"{{}} is {value!r}; it may hold small letters, digits and '-' only")
    return value


def _spec(value: str) -> str:
    if not _SPEC.fullmatch(value):
        raise ValueError(f"{{}} is {value!r}; write it as package.module:Name")
    return value


def _device(value: str) -> str:
    if not _DEVICE.fullmatch(value):
        raise ValueError(
            f"{{}}: {value!r} is no device; devices are cpu, cuda:0 and so on, emulated"
        )
    return value


def _type_name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value) or _DEVICE.fullmatch(value):
        raise ValueError(
            f"{{}}: {value!r} is no name of a device type; it may hold letters, digits, '.', '-' "
            "and '_', and is not that of a device"
        )
    return value


def _bounds(value: list[float]) -> list[float]:
    if len(value) != 2 or not 0 <= value[0] <= value[1] <= 1:
        raise ValueError(
            f"{{}} is {value}; write the smallest and the largest share, as in [0.3, 0.7]"
        )
    return value


def _positive(value: float) -> float:
    if not 0 < value < float("inf"):
        raise ValueError(f"{{}} is {value:g}; it must be above 0")
    return value


Duration = Annotated[float, BeforeValidator(duration), AfterValidator(_above_zero)]
Latency = Annotated[float, BeforeValidator(duration)]  # 0 is one
Positive = Annotated[float, AfterValidator(_positive)]
Bounds = Annotated[list[float], AfterValidator(_bounds)]
Quantile = Literal["mean", "p50", "p90", "p95", "p99"]
Size = Annotated[int, BeforeValidator(size), Field(gt=0)]
Name = Annotated[str, AfterValidator(_name)]
PipelineName = Annotated[str, AfterValidator(_pipeline_name)]
Spec = Annotated[str, AfterValidator(_spec)]
Device = Annotated[str, AfterValidator(_device)]
TypeName = Annotated[str, AfterValidator(_type_name)]
DeviceShare = Annotated[float, AfterValidator(_share)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, AfterValidator(_port)]
Replicas = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A mapping of known keys; nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LimitsSection(Section):
    """``tasks.<task>.variants.<variant>.limits``."""

    time: Duration | None = None
    memory: Size | None = None


class VariantSection(Section):
    """``tasks.<task>.variants.<variant>``."""

    operator: Spec
    arguments: dict[str, Any] = {}
    batch: Count = 1
    replicas: Replicas | None = None
    limits: LimitsSection = LimitsSection()


class TaskSection(Section):
    """``tasks.<task>``."""

    variants: Annotated[dict[Name, VariantSection], Field(min_length=1)]
    children: list[str] = []
    slots: Count = 64
    share: Bounds = [0.0, 1.0]
    weight: Positive = 1.0
    selection: Literal["", "ramsis", "ramsis-paper", "ramsis-variable"] = ""


class PolicySection(Section):
    """``policies.<policy>``."""

    kind: str = "static"
    replicas: dict[str, Replicas] = {}
    batch: dict[str, Count] = {}
    latency: Quantile | None = None
    rate: Quantile | None = None
    solver: Literal["highs", "cbc"] = "highs"
    gap: Positive = 1e-6
    nodes: Count = 20_000
    interval: Duration = 10.0
    estimator: Literal["recent", "ewma", "trend"] | None = None
    headroom: Positive = 1.0
    routing: Literal["throughput", "most-accurate-first", "balanced"] | None = None
    utilisation: DeviceShare | None = None
    dropping: (
        Literal["none", "deadline", "last-task", "per-task", "reroute", "reroute-paper"] | None
    ) = None
    budget: Literal["shared", "bare"] = "shared"
    batching: Literal["idle", "patient"] = "idle"
    loads: list[Positive] = []
    price: Annotated[float, Field(ge=0)] = 0.0
    capped: bool | None = None
    paced: bool | None = None
    longest_run: Count | None = None
    urgency: Annotated[float, Field(ge=0)] | None = None
    guard: Annotated[float, Field(ge=0, lt=1)] | None = None
    lead: Latency | Literal["auto"] | None = None
    learn: bool | None = None
    bound: Literal["eq15", "fluid"] | None = None
    pick: Literal["paper", "first", "simulate"] | None = None
    late: Literal["drop", "serve"] | None = None
    threshold: Replicas | None = None


class TypeSection(Section):
    """``cluster.types.<type>``."""

    device: Device = "emulated"
    price: Annotated[float, Field(ge=0)] = 0.0
    most: Replicas | None = None
    boot: Duration | None = None
    memory: Size | None = None


class ClusterSection(Section):
    """``cluster``."""

    devices: Annotated[dict[Device, Count], Field(min_length=1)] | None = None
    ingress: Count = 1
    egress: Count = 1
    share: DeviceShare = 1.0
    metrics_port: Port | None = None
    memory: dict[Device, Size] = {}
    types: Annotated[dict[TypeName, TypeSection], Field(min_length=1)] | None = None
    budget: Positive | None = None
    base: str | None = None
    start: dict[str, Replicas] | None = None


class QuerySizeSection(Section):
    """``size``."""

    most: Annotated[int, Field(ge=1, le=10**9)]
    header: str = "headrace-size"


class FileSection(Section):
    """The whole file."""

    name: PipelineName
    slo: Duration
    tasks: Annotated[dict[Name, TaskSection], Field(min_length=1)]
    cluster: ClusterSection
    input: Literal["raw", "avro", "confluent"] = "raw"
    results: Literal["avro", "json", "confluent"] = "avro"
    schema_registry: str | None = None
    combine: Spec | None = None
    incomplete: Literal["answered", "dropped"] = "answered"
    slo_classes: dict[Name, Duration] = {}
    admission: bool = True
    grace: Duration = 1.0
    egress_partitions: Count = 4
    comm: Latency = 1.4e-3
    compute_share: DeviceShare = 0.5
    branches: Literal["tied", "untied"] = "tied"
    policy: str = "static"
    policies: dict[Name, PolicySection] = {}
    profiles: list[str] = []
    workload: Spec | None = None
    size: QuerySizeSection | None = None
    sizes: str | None = None


def validated(source: Source) -> FileSection:
    """The file as sections; raises ``PipelineError`` for what stands wrong first in the file."""
    try:
        return FileSection.model_validate(source.values)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        raise min((_told(source, details) for details in wrong), key=lambda told: told[0])[
            1
        ] from error


def _told(source: Source, details: ErrorDetails) -> tuple[int, PipelineError]:
    place: Place = tuple(part for part in details["loc"] if part != "[key]")
    sentence = _sentence(place, details)
    if details["type"] == "missing":
        place = place[:-1]
    return source.line(place), source.error(place, sentence)


def _sentence(place: Place, details: ErrorDetails) -> str:
    kind, found, context = details["type"], reprlib.repr(details["input"]), details.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{{}} is no known key; {nearest(str(place[-1]), _keys(place[:-1]))}"
    if kind == "missing":
        return f"{'.'.join(map(str, place))} is missing; {EXAMPLES[str(place[-1])]}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "too_short":
        return "{} is empty; it needs one entry at least"
    if kind == "literal_error":
        return f"{{}} is {found}; it can be {context['expected']}"
    if kind in LIMITS:
        return f"{{}} is {found}; it must be {LIMITS[kind].format(**context)}"
    return f"{{}} is {found}; {WANTED.get(kind, details['msg'])}"


LIMITS = {
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "less_than": "below {lt}",
}

WANTED = {
    "bool_type": "write true or false",
    "dict_type": "write keys and values below it",
    "float_type": "write a number",
    "int_from_float": "write a whole number",
    "int_type": "write a whole number",
    "list_type": "write a list, as in [a, b]",
    "model_type": "write keys and values below it",
    "string_type": "write a text, quoted if it looks like a number",
}

EXAMPLES = {
    "name": "add a line such as: name: postcode",
    "slo": "add a line such as: slo: 300ms",
    "tasks": "name the tasks, each with its variants",
    "variants": "name one variant at least, with its operator",
    "operator": "name the class, as in operator: package.module:Class",
    "cluster": "name the workers, as in cluster: {devices: {cpu: 2}}",
    "devices": "name the workers, as in devices: {cpu: 2}",
    "most": "name the largest size, as in most: 1000",
}


def _keys(place: Place) -> list[str]:
    """The keys that a mapping of the file may have."""
    return list(SECTIONS[len(place), place[0] if place else ""].model_fields)


SECTIONS: dict[tuple[int, str | int], type[Section]] = {
    (0, ""): FileSection,
    (2, "tasks"): TaskSection,
    (4, "tasks"): VariantSection,
    (5, "tasks"): LimitsSection,
    (2, "policies"): PolicySection,
    (1, "cluster"): ClusterSection,
    (3, "cluster"): TypeSection,
    (1, "size"): QuerySizeSection,
}

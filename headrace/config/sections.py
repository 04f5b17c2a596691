"""The sections of a pipeline file: keys, types, and one sentence for each mistake.

Checks across sections are in ``headrace/config/checks.py``.
"""

import dataclasses
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from pydantic_core import ErrorDetails

from headrace.config.field_types import (
    STRICT,
    Bounds,
    Count,
    Device,
    DeviceShare,
    Duration,
    Latency,
    Name,
    PipelineName,
    Port,
    Positive,
    Processes,
    Rate,
    Replicas,
    Size,
    Slo,
    Spec,
    TypeName,
)
from headrace.config.policy_sections import Tables, section_keys, wrong_in
from headrace.config.yaml_source import Place, Source, read_source, suggestion
from headrace.errors import PipelineError
from headrace.model_registry.signature import Datatype
from schemas.durations import duration


class Section(BaseModel):
    """A mapping of known keys."""

    model_config = STRICT


class LimitsSection(Section):
    """``tasks.<task>.variants.<variant>.limits``."""

    time: Duration | None = None
    memory: Size | None = None


class VariantSection(Section):
    """``tasks.<task>.variants.<variant>``."""

    operator: Spec
    arguments: dict[str, Any] = {}
    paths: dict[str, str] = {}
    batch: Count = 1
    replicas: Replicas | None = None
    limits: LimitsSection = LimitsSection()
    warm_up: str | None = None


class TierSection(Section):
    """``cluster.tiers.<tier>``."""

    device: Device = "emulated"
    speed: Positive = 1.0
    cpu_speed: Positive = 1.0
    count: Processes | None = None
    shares: Literal[4] = 4
    price: Annotated[float, Field(ge=0, le=1e9)] = 0.0  # $ an hour
    memory: Size | None = None
    most: Processes | None = None
    per: Literal["session"] | None = None

    @property
    def devices_here(self) -> int:
        """The number of devices that ``headrace up`` runs; by default 1 on a tier per session."""
        return self.count or int(self.per == "session")


class LinkSection(Section):
    """``cluster.links.<tier>><tier>``."""

    rate: Rate
    delay: Latency = 0.0


class ShadowSection(Section):
    """``labels.shadow``."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.01


class LabelsSection(Section):
    """``labels``."""

    scorer: Spec | None = None
    within: Duration = 3600.0
    memory: Size = 64_000_000
    shadow: ShadowSection | None = None
    plan_by: Literal["profile", "measured"] = "profile"


class ProfilingSection(Section):
    """``profiling``."""

    truth: Literal["workload", "reference", "feedback"] = "workload"
    reference: dict[str, str | int | float | bool] = {}
    cache: Size = 500_000_000
    inputs: dict[str, str] = {}


class ReplicasSection(Section):
    """``tasks.<task>.replicas``."""

    least: Count = 1
    most: Count | None = None


class TaskSection(Section):
    """``tasks.<task>``."""

    variants: Annotated[dict[Name, VariantSection], Field(min_length=1)]
    children: list[str] = []
    slots: Count = 64
    share: Bounds = [0.0, 1.0]
    weight: Positive = 1.0
    selection: Tables = ""
    dispatch: str | None = None
    replicas: ReplicasSection = ReplicasSection()
    knobs: dict[Name, Annotated[list[str | int | float | bool], Field(min_length=1)]] = {}
    tiers: Annotated[list[str], Field(min_length=1)] | None = None
    batched: bool = False
    cpu: bool = False
    output_schema: str | None = None


# Keys of a variant that a task may have itself: they are those of its only variant.
OF_ONLY_VARIANT = VariantSection.model_fields.keys() - TaskSection.model_fields.keys()


class TypeSection(Section):
    """``cluster.types.<type>``."""

    device: Device = "emulated"
    share: DeviceShare = 1.0
    price: Annotated[float, Field(ge=0, le=1e9)] = 0.0  # $ an hour
    most: Replicas | None = None
    boot: Duration | None = None
    memory: Size | None = None


class GatewaySection(Section):
    """``cluster.gateway``."""

    http_port: Port = 8000
    grpc_port: Port | None = 8001
    processes: Processes = 1


class DashboardSection(Section):
    """``cluster.dashboard``."""

    port: Port = 8080


class ClusterSection(Section):
    """``cluster``."""

    devices: Annotated[dict[Device, Processes], Field(min_length=1)] | None = None
    ingress: Processes = 1
    egress: Processes = 1
    dispatchers: Processes = 1
    share: DeviceShare = 1.0
    tasks_per_device: Processes = 1
    metrics_port: Port | None = None
    memory: dict[Device, Size] = {}
    types: Annotated[dict[TypeName, TypeSection], Field(min_length=1)] | None = None
    budget: Positive | None = None
    base: str | None = None
    start: dict[str, Replicas] | None = None
    scale: Literal["nobody", "supervisor"] = "nobody"  # who rents devices at run time
    scale_command: str | None = None  # called with a type and a number of devices
    tiers: Annotated[dict[Name, TierSection], Field(min_length=1)] | None = None
    links: dict[str, LinkSection] = {}
    profilers: Processes = 1
    gateway: GatewaySection | None = None
    dashboard: DashboardSection | None = None


class QuerySizeSection(Section):
    """``size``."""

    most: Annotated[int, Field(ge=1, le=10**9)]
    header: str = "headrace-size"
    batch: Annotated[int, Field(ge=1, le=10**9)] | None = None  # the largest total size of a batch
    over: Literal["refuse", "split"] = "refuse"  # the treatment of queries above ``most``
    split: Spec | None = None  # the function that makes parts of such a query


class SloClassSection(Section):
    """``slo_classes.<class>``."""

    slo: Duration
    weight: Positive = 1.0
    floor: Annotated[float, Field(ge=0, le=1)] = 0.0


def _slo_class(value: Any) -> Any:
    """Return a class's keys; a duration alone is its SLO."""
    if isinstance(value, dict):
        return value
    duration(value)  # so that the mistake stands at the class
    return {"slo": value}


SloClass = Annotated[SloClassSection, BeforeValidator(_slo_class)]


class DeadlineSection(Section):
    """``deadline``."""

    most: Duration | None = None
    clock: Literal["producer", "broker"] = "producer"


class TensorSection(Section):
    """``signature.inputs.<tensor>`` and ``signature.outputs.<tensor>``."""

    datatype: Datatype
    shape: list[Annotated[int, Field(ge=-1)]]


class SignatureSection(Section):
    """``signature``."""

    inputs: Annotated[dict[str, TensorSection], Field(min_length=1)]
    outputs: Annotated[dict[str, TensorSection], Field(min_length=1)]


MOST_MISTAKES = 20  # in one error message


class FileSection(Section):
    """The whole file."""

    name: PipelineName
    slo: Slo
    tasks: Annotated[dict[Name, TaskSection], Field(min_length=1)]
    cluster: ClusterSection
    input: Literal["raw", "avro", "confluent"] = "raw"
    results: Literal["avro", "json", "confluent"] = "avro"
    schema_registry: str | None = None
    combine: Spec | None = None
    incomplete: Literal["answered", "dropped"] = "answered"
    answer_paths: Literal["auto", "tree", "all", "none"] = "auto"
    slo_classes: dict[Name, SloClass] = {}
    admission: bool = True
    grace: Duration = 1.0
    deadline: DeadlineSection = DeadlineSection()
    input_partitions: Count = 4
    results_partitions: Count = 4
    egress_partitions: Count = 4
    comm: Latency = 1.4e-3
    compute_share: DeviceShare = 0.5
    branches: Literal["tied", "untied"] = "tied"
    policy: str = "static"
    policies: dict[Name, dict[str, Any]] = {}  # validated by ``policy_sections``
    profiles: list[str] = []
    workload: Spec | None = None
    size: QuerySizeSection | None = None
    sizes: str | None = None
    signature: SignatureSection | None = None
    profiling: ProfilingSection | None = None
    labels: LabelsSection | None = None
    weight: Positive = 1.0

    @property
    def has_samples(self) -> bool:
        """Whether profilers have samples: the workload's, or inputs with labels."""
        of_labels = self.profiling is not None and self.profiling.truth == "feedback"
        return self.workload is not None or of_labels

    def topological(self) -> list[str]:
        """Return the tasks of the tree level by level from the root, each level in file order."""
        children = {child for section in self.tasks.values() for child in section.children}
        order = [task for task in self.tasks if task not in children]
        for task in order:  # grows during the iteration
            order.extend(self.tasks[task].children)
        return order


def pipeline_source(path: Path) -> Source:
    """Read a pipeline file, and spell out the variants of its tasks; raises ``PipelineError``.

    ``read: {operator: ..., batch: 8}`` stands for
    ``read: {variants: {read: {operator: ..., batch: 8}}}``.
    """
    source = read_source(path)
    tasks = source.values.get("tasks") if isinstance(source.values, dict) else None
    if not isinstance(tasks, dict):
        return source
    spelled_out = {
        name: _with_variants(name, task)
        for name, task in tasks.items()
        if isinstance(task, dict) and "variants" not in task and OF_ONLY_VARIANT & task.keys()
    }
    return dataclasses.replace(
        source,
        values={**source.values, "tasks": {**tasks, **spelled_out}},
        unnamed=frozenset(("tasks", name, "variants", name) for name in spelled_out),
    )


def _with_variants(name: str, task: dict[str, Any]) -> dict[str, Any]:
    own = TaskSection.model_fields
    variant = {key: value for key, value in task.items() if key not in own}
    return {key: task[key] for key in task if key in own} | {"variants": {name: variant}}


def validated(source: Source) -> FileSection:
    """Return the file as sections; raises ``PipelineError`` with every mistake, by line."""
    values = source.values
    wrong = wrong_in(values.get("policies")) if isinstance(values, dict) else []
    try:
        file = FileSection.model_validate(values)
    except ValidationError as error:
        wrong = [*error.errors(include_url=False), *wrong]
    if wrong:
        raise merged_mistakes([_error_at(source, each) for each in wrong])
    return file


def merged_mistakes(found: Sequence[tuple[int, PipelineError]]) -> PipelineError:
    """Merge all mistakes into one error: a sentence a line, in file order, without duplicates."""
    ordered = dict.fromkeys(str(error) for _, error in sorted(found, key=lambda each: each[0]))
    shown = list(ordered)[:MOST_MISTAKES]
    left = len(ordered) - len(shown)
    return PipelineError("\n".join([*shown, *([f"and {left} more"] if left else [])]))


def _error_at(source: Source, details: ErrorDetails) -> tuple[int, PipelineError]:
    place: Place = tuple(part for part in details["loc"] if part != "[key]")
    return source.line(place), source.error(place, _sentence(place, details, source))


def _sentence(place: Place, details: ErrorDetails, source: Source) -> str:
    kind, found, context = details["type"], reprlib.repr(details["input"]), details.get("ctx", {})
    if kind == "extra_forbidden" and _is_task(place[:-1]) and place[-1] in OF_ONLY_VARIANT:
        return "{} stands beside variants; move it into one of them"
    if kind == "extra_forbidden":
        return f"{{}} is no known key; {suggestion(str(place[-1]), _keys(place[:-1], source))}"
    if kind == "missing":
        return f"{{}} is missing; {EXAMPLES[str(place[-1])]}"
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
    "greater_than_equal": "{ge:g} or more",
    "less_than_equal": "{le:g} or less",
    "less_than": "below {lt:g}",
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
    "variants": "name the operator of its only variant, or several variants",
    "operator": "name the class or function, as in operator: package.module:Class",
    "cluster": "name the workers, as in cluster: {devices: {cpu: 2}}",
    "devices": "name the workers, as in devices: {cpu: 2}",
    "inputs": "name the tensors, as in inputs: {image: {datatype: UINT8, shape: [-1, -1, 3]}}",
    "outputs": "name the tensors, as in outputs: {label: {datatype: INT64, shape: [1]}}",
    "datatype": "name it, as in datatype: FP32",
    "shape": "write its sizes, -1 for any, as in shape: [-1, 3]",
    "most": "name the largest size, as in most: 1000",
    "rate": "write the link's speed, as in rate: 8Mbps",
}


def _is_task(place: Place) -> bool:
    return len(place) == 2 and place[0] == "tasks"


def _keys(place: Place, source: Source) -> list[str]:
    """Return the known keys of a mapping of the file."""
    if place in source.unnamed:
        return [*VariantSection.model_fields, *TaskSection.model_fields]
    if place[:2] in CLUSTER_SECTIONS:
        return list(CLUSTER_SECTIONS[place[:2]].model_fields)
    if len(place) == 2 and place[0] == "policies":
        return section_keys(source.values["policies"][place[1]])
    return list(SECTIONS[len(place), place[0] if place else ""].model_fields)


SECTIONS: dict[tuple[int, str | int], type[Section]] = {
    (0, ""): FileSection,
    (2, "tasks"): TaskSection,
    (3, "tasks"): ReplicasSection,
    (4, "tasks"): VariantSection,
    (5, "tasks"): LimitsSection,
    (1, "cluster"): ClusterSection,
    (3, "cluster"): TypeSection,
    (1, "size"): QuerySizeSection,
    (1, "deadline"): DeadlineSection,
    (1, "labels"): LabelsSection,
    (1, "profiling"): ProfilingSection,
    (2, "labels"): ShadowSection,
    (2, "cluster"): GatewaySection,
    (1, "signature"): SignatureSection,
    (3, "signature"): TensorSection,
    (2, "slo_classes"): SloClassSection,
}

CLUSTER_SECTIONS: dict[Place, type[Section]] = {
    ("cluster", "tiers"): TierSection,
    ("cluster", "links"): LinkSection,
    ("cluster", "dashboard"): DashboardSection,
}

"""Read and validate the pipeline file, its profiles, workload and combine function.

    file = read_pipeline_file(Path("examples/postcode/pipeline.yaml"))
    table = load_profile(file)

Errors are ``PipelineError``: one sentence each, with the line.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any

from control.problem.lazy_references import parts
from control.problem.seats import seat_device, seat_worker
from control.problem.session_space import SessionSpace
from headrace.config.checks import check, policies
from headrace.config.policy_sections import policy_of
from headrace.config.sections import (
    FileSection,
    GatewaySection,
    LabelsSection,
    SignatureSection,
    TaskSection,
    TensorSection,
    TypeSection,
    validated,
)
from headrace.config.session_sections import session_space
from headrace.config.signature import Signature, TensorSpec
from headrace.config.yaml_source import read_source
from headrace.errors import PipelineError
from operators.models.user_modules import import_module, make_known
from operators.user_frames import sentence, with_frames
from profiles.measurements import EMULATED, Entry, ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import ClassShare, Labels, Pipeline, QuerySize, Task, Variant

__all__ = [
    "Cluster",
    "PipelineError",
    "PipelineFile",
    "check_measured",
    "load_combine",
    "load_profile",
    "load_scorer",
    "load_workload",
    "make_importable",
    "planning_profile",
    "read_pipeline_file",
    "resolve_paths",
    "search_space",
    "weights_sha256",
]

# The methods of a workload class; the arguments are in docs/reference/operators.md.
WORKLOAD_METHODS = ("queries", "score", "task_inputs", "task_score")


NOBODY, SUPERVISOR = "nobody", "supervisor"  # values of ``cluster.scale``


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """A type of device that can be rented; its workers run on ``device`` of this machine.

    ``price`` is $ per hour of one, ``most`` the number available (None: no limit), ``boot_s`` the
    time from renting one until its worker is ready.
    """

    name: str
    device: str
    price: float = 0.0
    most: int | None = None
    boot_s: float = 0.0
    memory: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierDevices:
    """The devices of a tier that run here: ``count`` processes with a worker for each of ``tasks``.

    ``stretch`` is by task: an emulated device takes so many times the seconds of this machine.
    """

    name: str
    device: str
    count: int
    tasks: tuple[str, ...]
    stretch: Mapping[str, float]

    def seats(self, device: str) -> dict[str, str]:
        """Return the workers of one device ("depot-0"), with the device that each reports."""
        return {seat_worker(device, task): seat_device(task, self.name) for task in self.tasks}


@dataclass(frozen=True, slots=True)
class Gateways:
    """The gateway processes that `up` starts; all of them listen on the same ports.

    ``grpc_port`` None: HTTP only.
    """

    http_port: int
    grpc_port: int | None
    processes: int = 1


@dataclass(frozen=True, slots=True)
class Cluster:
    """The number of workers on each device, and of ingress and egress processes.

    ``share`` is the fraction of a device's time that a worker reserves, above 0, at most 1.
    ``tasks_per_device`` workers share a device and a process; each is counted in ``devices``, and
    has its part of the device's time in ``share`` and of its memory in ``memory``.
    Workers on rented devices are counted under their type's name: ``types`` defines the types,
    ``budget`` is $ per hour for all of them, ``base`` the base type if the file fixes it.
    ``scale`` says who rents and releases devices while the pipeline runs.
    """

    devices: tuple[tuple[str, int], ...]
    ingress: int = 1
    egress: int = 1
    share: float = 1.0
    memory: tuple[tuple[str, int], ...] = ()  # bytes that one worker of a device may use
    metrics_port: int | None = None  # of the first role, then ascending; 0: any free port
    types: tuple[DeviceType, ...] = ()
    budget: float | None = None
    base: str = ""
    tasks_per_device: int = 1
    profilers: int = 1  # processes that a search starts
    gateway: Gateways | None = None
    scale: str = NOBODY  # who rents devices of types while the pipeline runs
    tiers: tuple[TierDevices, ...] = ()  # where sessions are served; then ``devices`` are seats

    @property
    def unplanned(self) -> bool:
        """Whether the cluster has device types but no number of devices of them yet."""
        return bool(self.types) and not any(self.type_of(name) for name, _ in self.devices)

    def type_of(self, name: str) -> DeviceType | None:
        """Return the type of that name; None for a device that is no type."""
        return next((each for each in self.types if each.name == name), None)

    def tier(self, name: str) -> TierDevices | None:
        """Return the tier of that name; None for any other device."""
        return next((each for each in self.tiers if each.name == name), None)

    def host_device(self, name: str) -> str:
        """Return the device of this machine for a device, type or seat: "cpu", "cuda:0" ..."""
        tier = self.tier(name.partition("@")[2])
        if tier is not None:
            return tier.device
        found = self.type_of(name)
        return found.device if found else name

    @property
    def workers(self) -> tuple[str, ...]:
        """The device of each worker."""
        return tuple(device for device, count in self.devices for _ in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFile:
    """A pipeline file as read; its paths are absolute."""

    pipeline: Pipeline
    cluster: Cluster
    profiles: tuple[Path, ...]
    workload: str  # "package.module:Class", "" for none
    path: Path
    sessions: SessionSpace | None = None  # if the cluster has tiers
    sizes: Path | None = None  # the distribution of query sizes
    signature: Signature | None = None  # None: a query is bytes, an answer JSON


def read_pipeline_file(path: Path) -> PipelineFile:
    """Read and validate a pipeline file and make the modules beside it importable.

    Raises ``PipelineError`` with file, line, mistake and remedy.
    """
    source = read_source(Path(path))
    file = validated(source)
    check(file, source)
    absolute = Path(path).resolve()
    make_importable(absolute)
    return PipelineFile(
        pipeline=_pipeline(file, absolute.parent),
        cluster=_cluster(file),
        profiles=tuple(absolute.parent / profile for profile in file.profiles),
        workload=file.workload or "",
        path=absolute,
        sizes=absolute.parent / file.sizes if file.sizes else None,
        sessions=session_space(file, source) if file.cluster.tiers else None,
        signature=_signature(file.signature) if file.signature else None,
    )


def search_space(file: PipelineFile) -> SessionSpace:
    """Return the file's space of query plans; raise ``PipelineError`` if it has none."""
    if file.sessions is None:
        raise PipelineError(
            f"{file.path}: there is nothing to search: the cluster has no tiers; add cluster.tiers "
            "and knobs to the tasks"
        )
    return file.sessions


def make_importable(path: Path) -> None:
    """Make the modules beside a pipeline file importable; they precede Headrace's own."""
    make_known(Path(path).resolve().parent)


def resolve_paths(
    arguments: Mapping[str, Any], paths: Mapping[str, str], folder: Path
) -> dict[str, Any]:
    """Return the operator's arguments with ``paths`` and ``weights`` made absolute, below
    ``folder``."""
    resolved = {**arguments, **paths}
    for name in (*paths, *(("weights",) if "weights" in resolved else ())):
        resolved[name] = str((folder / str(resolved[name])).resolve())
    return resolved


def weights_sha256(variant: Variant) -> str:
    """Return the SHA-256 of the variant's weights file, "" without one."""
    if "weights" not in variant.arguments:
        return ""
    path = Path(str(variant.arguments["weights"]))
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise PipelineError(
            f"the weights {path} of {variant.key} cannot be read ({error.strerror}); train them "
            "or correct the path"
        ) from error


def load_profile(file: PipelineFile) -> ProfileTable:
    """Return the file's profiles as measured, in one table; an empty table without profiles.

    Planning and emulation use ``planning_profile`` instead. Raises ``PipelineError`` for a missing
    or malformed profile, and for one measured with another operator or other weights than the
    file's.
    """
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
        return ProfileTable.from_json(path.read_text(encoding="utf-8"))
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


def load_workload(file: PipelineFile) -> Any:
    """Return an instance of the file's workload class; raises ``PipelineError`` without one."""
    if not file.workload:
        raise PipelineError(
            f"{file.path}: no workload is named; add a line such as: workload: package.module:Class"
        )
    kind = _imported(file.workload, "workload")
    missing = [name for name in WORKLOAD_METHODS if not callable(getattr(kind, name, None))]
    if missing:
        raise PipelineError(
            f"workload {file.workload} has no method {' and no '.join(missing)}; "
            f"a workload class has {', '.join(WORKLOAD_METHODS)}"
        )
    return kind()


def load_combine(pipeline: Pipeline) -> Callable[..., Any] | None:
    """Return the pipeline's combine function, ``None`` without one; raises ``PipelineError``.

    It takes the outputs of leaf tasks and their tasks, also where the user's takes outputs only.
    """
    if not pipeline.combine:
        return None
    function = _function(pipeline.combine, "combine")
    if _takes_tasks(function):
        return function

    @wraps(function)
    def combine(outputs: list[Any], tasks: Sequence[str]) -> Any:
        return function(outputs)

    return combine


def _takes_tasks(function: Callable[..., Any]) -> bool:
    try:
        signature(function).bind([], [])
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return False
    required = [p for p in signature(function).parameters.values() if p.default is p.empty]
    return len(required) > 1 or "tasks" in signature(function).parameters


def load_scorer(labels: Labels) -> Callable[[Any, Any], Any] | None:
    """Return the function that scores a result by its truth, ``None`` for an exact match; raises
    ``PipelineError``."""
    return _function(labels.scorer, "labels.scorer") if labels.scorer else None


def _function(spec: str, what: str) -> Callable[..., Any]:
    function = _imported(spec, what)
    if not callable(function):
        raise PipelineError(f"{what} names {spec}, which is no function; write one")
    return function  # type: ignore[no-any-return]


def _imported(spec: str, what: str) -> Any:
    try:
        module, name = parts(spec)
    except ValueError as error:
        raise PipelineError(f"{what}: {error}") from error
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise PipelineError(
            f"{what} names {spec}, but {module} cannot be imported: {error}; put it beside the "
            "pipeline file or install it"
        ) from error
    except AttributeError as error:
        raise PipelineError(
            f"{what} names {spec}, but {module} has no {name}; correct the name"
        ) from error
    except (Exception, SystemExit) as error:
        text = f"{what} names {spec}, but importing {module} raised {sentence(error)}"
        raise PipelineError(with_frames(text, error)) from error


def _cluster(file: FileSection) -> Cluster:
    section = file.cluster
    types = tuple(_device_type(*each) for each in (section.types or {}).items())
    started = [(name, count) for name, count in (section.start or {}).items() if count]
    memory = {each.name: each.memory for each in types if each.memory is not None}
    parts = section.tasks_per_device
    devices = ((name, count * parts) for name, count in (section.devices or {}).items())
    tiers = () if section.devices or types else tuple(_tiers(file))
    seats = (
        (seat_device(task, each.name), each.count)
        for each in tiers
        for task in each.tasks
        if each.count
    )
    return Cluster(
        (*devices, *started, *seats),
        section.ingress,
        section.egress,
        section.share / parts,
        (*((name, size // parts) for name, size in section.memory.items()), *memory.items()),
        metrics_port=section.metrics_port,
        types=types,
        budget=section.budget,
        base=section.base or "",
        tasks_per_device=parts,
        profilers=section.profilers,
        gateway=_gateways(section.gateway) if section.gateway else None,
        scale=section.scale,
        tiers=tiers,
    )


def _gateways(section: GatewaySection) -> Gateways:
    return Gateways(section.http_port, section.grpc_port, section.processes)


def _signature(section: SignatureSection) -> Signature:
    return Signature(_tensors(section.inputs), _tensors(section.outputs))


def _tensors(sections: Mapping[str, TensorSection]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(n, each.datatype, tuple(each.shape)) for n, each in sections.items())


def _tiers(file: FileSection) -> Iterator[TierDevices]:
    """Yield the tiers with their devices here: the count of each, and who may run on it."""
    for name, tier in (file.cluster.tiers or {}).items():
        emulated = tier.device == EMULATED
        tasks = {
            task: section
            for task, section in file.tasks.items()
            if section.tiers is None or name in section.tiers
        }
        yield TierDevices(
            name=name,
            device="cpu" if emulated else tier.device,
            count=tier.devices_here,
            tasks=tuple(task for task in file.topological() if task in tasks),
            stretch={
                task: 1.0 / (tier.cpu_speed if section.cpu else tier.speed) if emulated else 1.0
                for task, section in tasks.items()
            },
        )


def _device_type(name: str, section: TypeSection) -> DeviceType:
    return DeviceType(
        name=name,
        device=section.device,
        price=section.price,
        most=section.most,
        boot_s=section.boot or 0.0,
        memory=section.memory,
    )


def _pipeline(file: FileSection, folder: Path) -> Pipeline:
    return Pipeline(
        name=file.name,
        slo_s=file.slo,
        tasks=tuple(_task(name, file.tasks[name], folder) for name in file.topological()),
        policies=tuple(policy_of(name, section) for name, section in policies(file)),
        policy=file.policy,
        input=file.input,
        results=file.results,
        schema_registry=file.schema_registry or "",
        combine=file.combine or "",
        incomplete=file.incomplete,
        answer_paths=file.answer_paths,
        slo_classes={name: each.slo for name, each in file.slo_classes.items()},
        class_shares={
            name: ClassShare(each.weight, each.floor) for name, each in file.slo_classes.items()
        },
        admission=file.admission,
        grace_s=file.grace,
        deadline_most_s=file.deadline.most,
        deadline_clock=file.deadline.clock,
        egress_partitions=file.egress_partitions,
        comm_s=file.comm,
        compute_share=file.compute_share,
        branches=file.branches,
        ingress=file.cluster.ingress,
        size=_size(file),
        sessions=bool(file.cluster.tiers),
        labels=_labels(file.labels) if file.labels else None,
    )


def _labels(section: LabelsSection) -> Labels:
    return Labels(scorer=section.scorer or "", within_s=section.within, memory_bytes=section.memory)


def _beside(folder: Path, name: str | None) -> str:
    """Return the absolute path of a file that the pipeline file names; "" for none."""
    return str((folder / name).resolve()) if name else ""


def _size(file: FileSection) -> QuerySize | None:
    size = file.size
    if size is None:
        return None
    return QuerySize(most=size.most, header=size.header, batch=size.batch or 0)


def _task(name: str, section: TaskSection, folder: Path) -> Task:
    return Task(
        name=name,
        variants=tuple(
            Variant(
                task=name,
                name=variant,
                operator=v.operator,
                arguments=resolve_paths(v.arguments, v.paths, folder),
                batch=v.batch,
                replicas=v.replicas,
                time_limit_s=v.limits.time,
                memory_limit_bytes=v.limits.memory,
                warm_up=_beside(folder, v.warm_up),
                output_schema=_beside(folder, section.output_schema),
            )
            for variant, v in section.variants.items()
        ),
        children=tuple(section.children),
        slots=section.slots,
        share=(section.share[0], section.share[1]),
        weight=section.weight,
        selection=section.selection,
        least=section.replicas.least,
        most=section.replicas.most,
    )

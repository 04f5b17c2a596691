"""Read and validate the pipeline file.

    file = read_pipeline_file(Path("examples/postcode/pipeline.yaml"))
    table = load_profile(file)  # headrace/config/profile_files.py

Errors are ``PipelineError``: one sentence each, with the line.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from control.problem.session_space import SessionSpace
from headrace.config.checks import check
from headrace.config.cluster import Cluster, cluster_of
from headrace.config.locked_models import locked_models
from headrace.config.policy_checks import policies
from headrace.config.policy_sections import policy_of
from headrace.config.sections import (
    FileSection,
    LabelsSection,
    SignatureSection,
    TaskSection,
    TensorSection,
    pipeline_source,
    validated,
)
from headrace.config.session_sections import session_space
from headrace.errors import PipelineError
from headrace.model_registry.lock_file import LockedModel
from headrace.model_registry.signature import Signature, TensorSpec
from operators.models.user_modules import make_known
from schemas.pipeline import ClassShare, Labels, Pipeline, QuerySize, Task, Variant


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
    models: tuple[LockedModel, ...] = ()  # those that it names by references
    inputs: Mapping[str, str] = field(default_factory=dict)  # session -> broker of its input


def read_pipeline_file(path: Path) -> PipelineFile:
    """Read and validate a pipeline file and make the modules beside it importable.

    Raises ``PipelineError`` with file, line, mistake and remedy.
    """
    source = pipeline_source(Path(path))
    file = validated(source)
    check(file, source)
    models = locked_models(file, source)
    absolute = Path(path).resolve()
    make_importable(absolute)
    return PipelineFile(
        pipeline=_pipeline(file, absolute.parent, models),
        cluster=cluster_of(file),
        profiles=tuple(absolute.parent / profile for profile in file.profiles),
        workload=file.workload or "",
        path=absolute,
        sizes=absolute.parent / file.sizes if file.sizes else None,
        sessions=session_space(file, source) if file.cluster.tiers else None,
        signature=_signature(file.signature) if file.signature else None,
        models=tuple(models.values()),
        inputs=file.profiling.inputs if file.profiling else {},
    )


def search_space(file: PipelineFile) -> SessionSpace:
    """Return the file's space of query plans, with the hashes of the weights of its operators.

    Raises ``PipelineError`` if the file has none, or if weights cannot be read.
    """
    if file.sessions is None:
        raise PipelineError(
            f"{file.path}: there is nothing to search: the cluster has no tiers; add cluster.tiers "
            "and knobs to the tasks"
        )
    variants = [variant for task in file.pipeline.tasks for variant in task.variants]
    hashes = [*map(weights_sha256, variants), *(model.sha256 for model in file.models)]
    space = file.sessions.space
    operators = " ".join((space.operators, *hashes))
    return replace(file.sessions, space=replace(space, operators=operators))


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


def make_importable(path: Path) -> None:
    """Make the modules beside a pipeline file importable; they precede Headrace's own."""
    make_known(Path(path).resolve().parent)


def resolve_paths(
    arguments: Mapping[str, Any],
    paths: Mapping[str, str],
    folder: Path,
    models: Mapping[str, LockedModel],
) -> dict[str, Any]:
    """Return the operator's arguments with ``paths`` and ``weights`` made absolute, below
    ``folder``; a reference becomes the path of its model."""
    resolved = {**arguments, **paths}
    for name in (*paths, *(("weights",) if "weights" in resolved else ())):
        model = models.get(str(resolved[name]))
        path = model.path if model else str(resolved[name])
        resolved[name] = str((folder / path).resolve())
    return resolved


def _signature(section: SignatureSection) -> Signature:
    return Signature(_tensors(section.inputs), _tensors(section.outputs))


def _tensors(sections: Mapping[str, TensorSection]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(n, each.datatype, tuple(each.shape)) for n, each in sections.items())


def _pipeline(file: FileSection, folder: Path, models: Mapping[str, LockedModel]) -> Pipeline:
    return Pipeline(
        name=file.name,
        slo_s=file.slo,
        tasks=tuple(_task(name, file.tasks[name], folder, models) for name in file.topological()),
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
        input_partitions=file.input_partitions,
        results_partitions=file.results_partitions,
        egress_partitions=file.egress_partitions,
        comm_s=file.comm,
        compute_share=file.compute_share,
        branches=file.branches,
        ingress=file.cluster.ingress,
        dispatchers=file.cluster.dispatchers,
        size=_size(file),
        sessions=bool(file.cluster.tiers),
        labels=_labels(file.labels) if file.labels else None,
    )


def _labels(section: LabelsSection) -> Labels:
    shadow = section.shadow
    return Labels(
        scorer=section.scorer or "", within_s=section.within, memory_bytes=section.memory,
        shadow_share=shadow.share if shadow is not None else 0.0, plan_by=section.plan_by,
    )  # fmt: skip


def _beside(folder: Path, name: str | None) -> str:
    """Return the absolute path of a file that the pipeline file names; "" for none."""
    return str((folder / name).resolve()) if name else ""


def _size(file: FileSection) -> QuerySize | None:
    size = file.size
    if size is None:
        return None
    return QuerySize(
        most=size.most, header=size.header, batch=size.batch or 0, split=size.split or ""
    )


def _task(name: str, section: TaskSection, folder: Path, models: Mapping[str, LockedModel]) -> Task:
    return Task(
        name=name,
        variants=tuple(
            Variant(
                task=name,
                name=variant,
                operator=v.operator,
                arguments=resolve_paths(v.arguments, v.paths, folder, models),
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
        dispatch=section.dispatch or "",
        least=section.replicas.least,
        most=section.replicas.most,
    )

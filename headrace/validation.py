"""Can everything that a pipeline file names be had here, and do its workers suffice?"""

from dataclasses import dataclass
from typing import Any

from control.problem import SELECTING, PlanError, Problem, policy_named
from control.solvers import solve
from headrace.config import (
    PipelineError,
    PipelineFile,
    load_combine,
    load_profile,
    load_workload,
)
from operators.models.loading import load_operator
from profiles.table import ProfileTable
from schemas.pipeline import Pipeline, Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """A pipeline file that is right. ``infeasible``: what stands in the way, by policy."""

    file: PipelineFile
    profiled: tuple[str, ...]  # "task/variant"
    infeasible: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """What the file says, in short."""
        pipeline = self.file.pipeline
        return {
            "valid": True,
            "pipeline": pipeline.name,
            "slo_ms": pipeline.slo_s * 1e3,
            "tasks": {t.name: [v.name for v in t.variants] for t in pipeline.tasks},
            "policy": pipeline.policy,
            "policies": [policy.name for policy in pipeline.policies],
            "devices": dict(self.file.cluster.devices),
            "share": self.file.cluster.share,
            "profiled": list(self.profiled),
            "infeasible": self.infeasible,
        }


def examined(file: PipelineFile) -> Examined:
    """Load profiles, functions and operator classes (no weights), and try every policy.

    Raises ``PipelineError`` or ``ModelError`` for what cannot be had.
    """
    table = load_profile(file)
    load_combine(file.pipeline)
    if file.workload:
        load_workload(file)
    for task in file.pipeline.tasks:
        for variant in task.variants:
            load_operator(variant)
    return Examined(
        file=file,
        profiled=tuple(dict.fromkeys(f"{e.task}/{e.variant}" for e in table.entries)),
        infeasible=_infeasible(file, table),
    )


def _infeasible(file: PipelineFile, table: ProfileTable) -> dict[str, str]:
    devices = tuple(device for device, count in file.cluster.devices for _ in range(count))
    found = {}
    for policy in _tried(file.pipeline):
        problem = Problem(
            pipeline=file.pipeline,
            policy=policy,
            slo_s=file.pipeline.slo_s,
            demand_qps=0.0,
            devices=devices,
            profile=table if table.entries else None,
            memory=dict(file.cluster.memory),
        )
        try:
            allocation = solve(policy.kind, problem)
        except PlanError as error:
            raise PipelineError(f"{file.path}: {error}") from error
        if not allocation.feasible:
            found[policy.name] = allocation.binding
    return found


def _tried(pipeline: Pipeline) -> list[Policy]:
    """The policies whose plan depends on no demand: those of the file, and the one in force."""
    first = policy_named(pipeline, pipeline.policy)
    there = pipeline.policies if first in pipeline.policies else (*pipeline.policies, first)
    return [each for each in there if each and each.kind in ("static", *SELECTING)]


def described(found: Examined) -> str:
    """The same for a person."""
    file = found.file
    lines = [f"{file.path.name} is right: pipeline {file.pipeline.name}, SLO "
             f"{file.pipeline.slo_s * 1e3:g} ms, policy {file.pipeline.policy}"]  # fmt: skip
    for task in file.pipeline.tasks:
        names = [v.name + ("" if v.key in found.profiled else " (no profile)")
                 for v in task.variants]  # fmt: skip
        children = f" -> {', '.join(task.children)}" if task.children else ""
        lines.append(f"  {task.name}{children}: {', '.join(names)}")
    lines += [
        f"policy {policy!r} is infeasible: {binding}"
        for policy, binding in found.infeasible.items()
    ]
    return "\n".join(lines)

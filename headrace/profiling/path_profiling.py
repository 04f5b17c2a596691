"""``headrace profile --paths``: measure the end-to-end accuracy of every path of variants.

The product of the variants' accuracies equals the path's only if the variants err independently
and their inputs in service are distributed as those they were judged on. So whole queries run
along every path:

    accuracy(path)   =  parts right in the answers  /  parts in the truths

over the workload's queries, in the order of ``queries``. Each variant runs once on the outputs of
each path before it. Latencies are not measured here.
"""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headrace.config.pipeline_file import PipelineFile, weights_sha256
from headrace.config.profile_files import check_measured, read_profile
from headrace.config.user_functions import load_combine, load_workload
from headrace.errors import PipelineError
from headrace.profiling.device_profiling import (
    ProfilingOptions,
    machine_facts,
    real_devices,
    write_profile,
)
from headrace.profiling.variant_process import (
    Mouth,
    in_a_process,
    loaded_operator,
    predicted_outputs,
)
from headrace.terminal import progress
from operators.join import as_list
from profiles.measure import items_for
from profiles.measurements import PathAccuracy, ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Variant
from schemas.variant_id import variant_id

NOTE = (
    "accuracy: parts right over parts, of the answers to the workload's queries run along the "
    "path; weights: SHA-256 by variant, as the entries have them"
)

RunVariant = Callable[[Variant, Sequence[Any]], Sequence[Any]]  # a variant's outputs for its inputs
Judge = Callable[[str, list[Any], Any], tuple[int, int]]  # leaf task, outputs, truth: right, of
Lists = list[list[Any]]  # the items of each query at a task


@dataclass(frozen=True, slots=True, kw_only=True)
class PathJob:
    """The pipeline, the device, and the number of queries."""

    file: PipelineFile
    device: str
    samples: int
    seed: int


def profile_paths(
    file: PipelineFile,
    devices: Sequence[str],
    out: Path,
    settings: ProfilingOptions,
) -> ProfileTable:
    """Measure every path on the first of the devices and add it to the profile ``out``.

    The profile's entries stay as they are. Raises ``PipelineError`` if there is no profile, if it
    was made with other weights, or if the workload cannot judge a path.
    """
    table = _profiled(file, out)
    judge(file)  # before any work
    device = real_devices(file.cluster, devices)[0]
    job = PathJob(file=file, device=device, samples=settings.samples, seed=settings.seed)
    total, done = _runs(file.pipeline), iter(range(10**6))
    with progress("profiling", total, every_s=0.0) as advance:
        found: tuple[PathAccuracy, ...] = in_a_process(
            _measure, (job,), file.path, "paths", lambda what: advance(next(done), what)
        )
        advance(total, "done")
    origin = {**table.provenance, "paths": _provenance(job)}
    table = replace(table, paths=found, provenance=origin)
    write_profile(table, out)
    return table


def judge(file: PipelineFile) -> Judge:
    """Return the workload's judge of one leaf task's outputs for one query.

    Raises ``PipelineError`` if there are several leaf tasks and only whole answers are judged.
    """
    workload = load_workload(file)
    leaves = [task.name for task in file.pipeline.tasks if not task.children]
    if callable(getattr(workload, "leaf_score", None)):
        leaf_score: Judge = workload.leaf_score
        return leaf_score
    if len(leaves) > 1:
        raise PipelineError(
            f"workload {file.workload} judges whole answers, which says nothing of one path among "
            f"those to {', '.join(leaves)}; give it a method leaf_score(task, outputs, truth)"
        )
    combine = load_combine(file.pipeline) or as_list
    return lambda leaf, outputs, truth: workload.score(
        combine(outputs, [leaf] * len(outputs)), truth
    )


def along_paths(
    pipeline: Pipeline, queries: Sequence[Any], run: RunVariant
) -> dict[tuple[str, ...], Lists]:
    """Return the outputs of every path to a leaf task, by path ("task/variant"), per query."""
    found: dict[tuple[str, ...], Lists] = {}
    at: dict[str, dict[tuple[str, ...], Lists]] = {
        pipeline.root.name: {(): [[query] for query in queries]}
    }
    for task in pipeline.tasks:
        for variant in task.variants:
            for way, lists in at[task.name].items():
                path = (*way, variant.key)
                outputs = _grouped(run(variant, [x for items in lists for x in items]), lists)
                if not task.children:
                    found[path] = outputs
                for child in task.children:
                    of_child = at.setdefault(child, {})
                    of_child[path] = [_items(each, child, task.children) for each in outputs]
        del at[task.name]
    return found


def right(outputs: Sequence[Any], truths: Sequence[Any], score: Callable[..., Any]) -> float:
    """Return the share of parts that are right; raise ``ProfileError`` if there is no part."""
    scores = [score(list(each), truth) for each, truth in zip(outputs, truths, strict=True)]
    parts = sum(of for _, of in scores)
    if not parts:
        raise ProfileError("the workload's score counted no part; it returns (right, of)")
    return round(float(sum(good for good, _ in scores) / parts), 6)


def _grouped(outputs: Sequence[Any], lists: Lists) -> Lists:
    rest = iter(outputs)
    return [list(islice(rest, len(items))) for items in lists]


def _items(outputs: Sequence[Any], child: str, children: Sequence[str]) -> list[Any]:
    return [item for output in outputs for item in items_for(output, children)[child]]


def _measure(job: PathJob, mouth: Mouth) -> None:
    """Run every path and send their accuracies."""
    pipeline, workload = job.file.pipeline, load_workload(job.file)
    sampled = list(islice(workload.queries(np.random.default_rng(job.seed)), job.samples))
    if not sampled:
        raise ProfileError("the workload's method queries yields none; paths are judged by them")
    queries, truths = zip(*sampled, strict=True)
    operators: dict[str, Any] = {}

    def run(variant: Variant, inputs: Sequence[Any]) -> Sequence[Any]:
        mouth.doing(f"{variant.key}, {len(inputs)} items")
        if variant.key not in operators:
            operators.clear()  # one model at a time, also of those that hold cycles
            gc.collect()
            operators[variant.key] = loaded_operator(job.file, variant, job.device)
        return predicted_outputs(operators[variant.key], inputs, variant.batch)

    score = judge(job.file)
    mouth.say(
        tuple(
            PathAccuracy(path, right(outputs, truths, _of_leaf(score, path)), len(queries))
            for path, outputs in along_paths(pipeline, queries, run).items()
        )
    )


def _of_leaf(score: Judge, path: tuple[str, ...]) -> Callable[[list[Any], Any], tuple[int, int]]:
    leaf = variant_id(path[-1]).task
    return lambda outputs, truth: score(leaf, outputs, truth)


def _runs(pipeline: Pipeline) -> int:
    """Return the total number of variant runs, over all paths."""
    ways: Mapping[str, int] = {pipeline.root.name: 1}
    total = 0
    for task in pipeline.tasks:
        own = ways[task.name] * len(task.variants)
        total += own
        ways = {**ways, **dict.fromkeys(task.children, own)}
    return total


def _profiled(file: PipelineFile, out: Path) -> ProfileTable:
    """Return the profile to extend; raise ``PipelineError`` if it lacks a variant."""
    mend = f"run `headrace profile {file.path.name}` first, without --paths"
    table = read_profile(out, f"paths are added to a profile, and {out} is not there; {mend}")
    known = {(entry.task, entry.variant) for entry in table.entries}
    for task in file.pipeline.tasks:
        for variant in task.variants:
            if (task.name, variant.name) not in known:
                raise PipelineError(f"{out} has no profile of {variant.key}; {mend}")
    check_measured(file, table)
    return table


def _provenance(job: PathJob) -> dict[str, Any]:
    variants = [variant for task in job.file.pipeline.tasks for variant in task.variants]
    return {
        **machine_facts(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": job.device,
        "queries": job.samples,
        "seed": job.seed,
        "weights": {variant.key: weights_sha256(variant) for variant in variants},
        "note": NOTE,
    }

"""Checks of a pipeline file's policies: kinds, options, traffic and replicas.

Every check raises ``PipelineError`` with the line of the mistake.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from control.policies import POLICIES, known_kinds, spec_of
from control.policies.option_fields import TRAFFIC
from control.problem.problem import PlanError
from headrace.config.policy_sections import DEFAULT_KIND, KIND
from headrace.config.sections import FileSection, TaskSection
from headrace.config.yaml_source import Source, suggestion
from schemas.variant_id import variant_id, variant_key

STATIC = "static"
ROUNDING = 1e-9  # shares that add up to this much more than 1 do so by rounding errors


def policies(file: FileSection) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every policy's name and section, first the built-in ``static``."""
    yield STATIC, {}
    yield from file.policies.items()


def check_policies(file: FileSection, source: Source) -> None:
    """Check that the policy in force exists; policies have known kinds and name known variants."""
    if STATIC in file.policies:
        raise source.error(
            ("policies", STATIC),
            "the policy 'static' always exists (replicas and batch of the variants); "
            "give this one another name",
        )
    named = [name for name, _ in policies(file)]
    # ``known_kinds`` reads the metadata of every installed package, so it is asked last.
    if file.policy not in named and file.policy not in known_kinds():
        known = list(dict.fromkeys([*named, *known_kinds()]))
        raise source.error(
            ("policy",),
            f"{{}} is {file.policy!r}, which is no policy; {suggestion(file.policy, known)}",
        )
    variants = [variant_key(task, name) for task, t in file.tasks.items() for name in t.variants]
    for policy, section in file.policies.items():
        check_kind(policy, section, source)
        for key in ("replicas", "batch", TRAFFIC.name):
            for variant in section.get(key, {}):
                if variant not in variants:
                    raise source.error(
                        ("policies", policy, key, variant),
                        f"policy {policy!r} names the variant {variant!r}, which is none; "
                        f"{suggestion(variant, variants)}",
                    )


def check_traffic(
    policy: str, section: Mapping[str, Any], file: FileSection, source: Source
) -> None:
    """Check that a policy's shares of a task fit 1, and that their variants have workers."""
    total: dict[str, float] = {}
    for key, share in section.get(TRAFFIC.name, {}).items():
        task, variant = variant_id(key)
        place = ("policies", policy, TRAFFIC.name, key)
        total[task] = total.get(task, 0.0) + share
        if total[task] > 1 + ROUNDING:
            raise source.error(
                place, f"the shares of task {task!r} add up to {total[task]:g}; 1 is all of it"
            )
        own = file.tasks[task].variants[variant].replicas
        asked = section.get("replicas", {})
        if not (asked.get(key) if asked else own):
            raise source.error(
                place, f"{key} gets traffic and no worker; add it to policies.{policy}.replicas"
            )


def check_kind(policy: str, section: Mapping[str, Any], source: Source) -> None:
    """Check that the policy's kind exists and can be loaded."""
    kind, place = section.get(KIND, DEFAULT_KIND), ("policies", policy, KIND)
    if kind in POLICIES:
        return
    kinds = known_kinds()
    if kind not in kinds:
        raise source.error(
            place,
            f"{{}} is {kind!r}, and no policy of that kind is installed here; "
            f"{suggestion(kind, list(kinds))}",
        )
    try:
        spec_of(kind)
    except PlanError as error:
        raise source.error(place, f"{{}}: {error}") from error


def replicas(section: Mapping[str, Any], task: str, tasks: Mapping[str, TaskSection]) -> int:
    """Return the fewest workers of a task under a policy, as ``control/policies/static.py`` counts.

    A policy's ``replicas``, if any, override the replicas of all variants. A task without
    replicas takes one at least.
    """
    variants = tasks[task].variants
    own = {name: variant.replicas for name, variant in variants.items()}
    asked = section.get("replicas", {})
    named = {name: asked.get(variant_key(task, name)) for name in variants}
    said = [count for count in (named if asked else own).values() if count is not None]
    return sum(said) if said else 1


def check_replicas(
    policy: str, section: Mapping[str, Any], file: FileSection, source: Source
) -> None:
    """Check that every task has a worker, none more than its slots, and all fit the cluster."""
    takes = {task: replicas(section, task, file.tasks) for task in file.tasks}
    for task, count in takes.items():
        place = ("tasks", task) if policy == STATIC else ("policies", policy, "replicas")
        slots = file.tasks[task].slots
        if count == 0:
            raise source.error(
                place,
                f"policy {policy!r} gives task {task!r} 0 replicas, so no query could be "
                "answered; give one of its variants 1 or more",
            )
        if count > slots:
            raise source.error(
                place,
                f"policy {policy!r} asks for {count} replicas of task {task!r}, which has {slots} "
                f"slots, one per replica; raise tasks.{task}.slots or lower the replicas",
            )
    devices = file.cluster.devices or {}
    if file.cluster.types or (file.cluster.tiers and not devices):
        return  # devices are rented on demand, or shared by sessions
    there = workers_of(file)
    if sum(takes.values()) > there:
        have = ", ".join(f"{device}: {count}" for device, count in devices.items())
        has = f"the cluster has {there} worker{'s' * (there > 1)} ({have}); raise cluster.devices"
        if sum(takes.values()) == len(takes):
            raise source.error(
                ("cluster", "devices"),
                f"the {len(takes)} tasks need a worker each and {has}, or let tasks share devices: "
                f"cluster.tasks_per_device",
            )
        raise source.error(
            ("cluster", "devices") if policy == STATIC else ("policies", policy),
            f"policy {policy!r} asks for {sum(takes.values())} replicas but {has} or lower "
            "replicas",
        )


def workers_of(file: FileSection) -> int:
    """Return the number of workers of the cluster section."""
    return sum((file.cluster.devices or {}).values()) * file.cluster.tasks_per_device


def check_workers(file: FileSection, source: Source) -> None:
    """Check that the cluster has workers, device types to rent, or tiers."""
    if not file.cluster.devices and not file.cluster.types and not file.cluster.tiers:
        raise source.error(
            ("cluster",),
            "{} has no workers; name them, as in cluster: {devices: {cpu: 2}}, or name types with "
            "a budget",
        )


def check_dispatch(file: FileSection, source: Source) -> None:
    """Check the tasks with a dispatcher: inner ones, a policy that dispatches, no batches."""
    root = next(iter(file.topological()))
    for name, task in file.tasks.items():
        if task.dispatch is not None:
            _check_task(name, task, root, file, source)


def _check_task(name: str, task: TaskSection, root: str, file: FileSection, source: Source) -> None:
    place = ("tasks", name, "dispatch")
    if name == root:
        raise source.error(
            place,
            f"queries of the first task are dispatched by ingress, under a policy that dispatches; "
            f"write `policy: {task.dispatch}` instead",
        )
    known = dispatching(file)
    if task.dispatch not in known:
        raise source.error(
            place,
            f"{{}} is {task.dispatch!r}, which is no policy that dispatches; "
            f"{suggestion(str(task.dispatch), known)}",
        )
    if file.cluster.tiers or task.selection:
        other = "cluster.tiers" if file.cluster.tiers else f"tasks.{name}.selection"
        raise source.error(
            place, f"a dispatcher and {other} both choose where an item runs; remove one of them"
        )
    for variant, section in task.variants.items():
        if section.batch > 1:
            raise source.error(
                ("tasks", name, "variants", variant, "batch"),
                f"{{}} is {section.batch}, but the dispatcher of task {name!r} sends items one by "
                "one; remove it",
            )


def dispatching(file: FileSection) -> list[str]:
    """Return the names of the policies of a file that dispatch."""
    kinds = {name: section.get(KIND, DEFAULT_KIND) for name, section in policies(file)}
    named = [name for name, kind in kinds.items() if spec_of(kind).dispatch]
    return list(
        dict.fromkeys([*named, *(kind for kind in known_kinds() if spec_of(kind).dispatch)])
    )

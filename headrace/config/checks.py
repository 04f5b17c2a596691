"""Consistency checks of the pipeline file: tasks form one tree, names exist, replicas fit.

Every check raises ``PipelineError`` with the line of the mistake.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from control.policies import known_kinds, spec_of
from control.policies.option_fields import TRAFFIC
from control.problem.problem import PlanError
from headrace.config.policy_sections import DEFAULT_KIND, KIND
from headrace.config.sections import FileSection, TaskSection
from headrace.config.yaml_source import Source, nearest
from schemas.pipeline import MOST_DEADLINE_S
from schemas.variant_id import variant_id, variant_key

STATIC = "static"
_ROUNDING = 1e-9


def check(file: FileSection, source: Source) -> None:
    """Run every check; a mistake that causes others is checked before them."""
    check_children(file.tasks, source)
    check_tree(file.tasks, source)
    check_policies(file, source)
    check_workers(file, source)
    check_egress(file, source)
    check_sharing(file, source)
    for policy, section in policies(file):
        check_replicas(policy, section, file, source)
        check_traffic(policy, section, file, source)
    check_types(file, source)
    check_sizes(file, source)
    check_deadline(file, source)
    check_bounds(file, source)
    check_shares(file, source)
    check_memory(file, source)
    check_emulation(file, source)
    check_registry(file, source)
    check_weights(file, source)
    check_output_schemas(file, source)
    check_tiers(file, source)
    check_knobs(file, source)
    check_signature(file, source)


def check_signature(file: FileSection, source: Source) -> None:
    """Check that queries on a raw input topic, whose payload is bytes, have one BYTES element."""
    if file.signature is None or file.input != "raw":
        return
    inputs = list(file.signature.inputs.values())
    if len(inputs) != 1 or inputs[0].datatype != "BYTES" or inputs[0].shape != [1]:
        raise source.error(
            ("signature", "inputs"),
            "{} hold tensors, but payloads on a raw input topic are bytes: write input: avro, or "
            "one input with datatype: BYTES and shape: [1]",
        )


def check_output_schemas(file: FileSection, source: Source) -> None:
    """Check that only leaf tasks have a schema of outputs; other tasks' outputs are items."""
    for name, task in file.tasks.items():
        if task.output_schema and task.children:
            raise source.error(
                ("tasks", name, "output_schema"),
                f"{{}} is for leaf tasks, and {name} has children; give it to the leaf tasks",
            )


def check_egress(file: FileSection, source: Source) -> None:
    """Check that every egress has as many partitions.

    Then ``egress_partitions`` may change under traffic: a query's records, some of them sent before
    the change, all reach one egress.
    """
    partitions, processes = file.egress_partitions, file.cluster.egress
    if partitions % processes:
        fitting = [n for n in range(1, partitions + 1) if partitions % n == 0]
        raise source.error(
            ("cluster", "egress"),
            f"{{}} is {processes}, which does not divide egress_partitions ({partitions}), so that "
            f"a query could have two egresses; write one of {', '.join(map(str, fitting))}",
        )


def check_children(tasks: Mapping[str, TaskSection], source: Source) -> None:
    """Check that every child is a task and no task has two parents."""
    parents: dict[str, str] = {}
    for task, section in tasks.items():
        for at, child in enumerate(section.children):
            place = ("tasks", task, "children", at)
            if child not in tasks:
                raise source.error(
                    place, f"{{}} is {child!r}, which is no task; {nearest(child, list(tasks))}"
                )
            if child in parents:
                raise source.error(
                    place,
                    f"task {child!r} is a child of {parents[child]!r} and of {task!r}; tasks form "
                    "a tree: remove one, or make a second task with the same variants",
                )
            parents[child] = task


def check_tree(tasks: Mapping[str, TaskSection], source: Source) -> None:
    """Check that the tasks form one tree with one root."""
    parent = {child: task for task, section in tasks.items() for child in section.children}
    for task in tasks:
        circle = _circle(task, parent)
        if circle:
            raise source.error(
                ("tasks", task, "children"),
                f"tasks go in a circle: {' -> '.join(circle)}; remove one of these children",
            )
    roots = [task for task in tasks if task not in parent]
    if len(roots) > 1:
        raise source.error(
            ("tasks", roots[1]),
            f"tasks {' and '.join(map(repr, roots))} have no parent, but a pipeline has one "
            f"root; make {roots[1]!r} a child of another task or remove it",
        )


def _circle(task: str, parent: Mapping[str, str]) -> list[str]:
    """Return the cycle of tasks from this one down to itself, [] if there is none."""
    path = [task]
    while path[-1] in parent and len(path) <= len(parent):
        path.append(parent[path[-1]])
        if path[-1] == task:
            return path[::-1]
    return []


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
    known = list(dict.fromkeys([*(name for name, _ in policies(file)), *known_kinds()]))
    if file.policy not in known:
        raise source.error(
            ("policy",),
            f"{{}} is {file.policy!r}, which is no policy; {nearest(file.policy, known)}",
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
                        f"{nearest(variant, variants)}",
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
        if total[task] > 1 + _ROUNDING:
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
    kind, place, kinds = section.get(KIND, DEFAULT_KIND), ("policies", policy, KIND), known_kinds()
    if kind not in kinds:
        raise source.error(
            place, f"{{}} is {kind!r}, which is no planner; {nearest(kind, list(kinds))}"
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
    there = _workers(file)
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


def _workers(file: FileSection) -> int:
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


def check_types(file: FileSection, source: Source) -> None:
    """Check that a limit or a budget bounds device types, and that named types exist."""
    types = file.cluster.types or {}
    for key, value in (("budget", file.cluster.budget), ("start", file.cluster.start)):
        if value is not None and not types:
            raise source.error(
                ("cluster", key), "{} is for types of devices, and cluster.types names none"
            )
    check_type_names(file, source)
    unbounded = [n for n, each in types.items() if each.most is None and each.price == 0]
    if unbounded:
        raise source.error(
            ("cluster", "types", unbounded[0]),
            f"type {unbounded[0]!r} costs nothing and has no limit; add most or a price",
        )
    if types and file.cluster.budget is None and not file.cluster.start:
        raise source.error(
            ("cluster", "types"),
            "{} can be rented, but nothing says how many; add a line budget: 2.5 ($ per hour)",
        )
    if file.cluster.scale != "nobody" and (not types or file.cluster.budget is None):
        raise source.error(
            ("cluster", "scale"),
            "{} rents devices of cluster.types within cluster.budget; add both, or remove it",
        )
    if types and not file.profiles:
        raise source.error(
            ("cluster", "types"),
            "{} differ by their profiles and the file names none; add profiles: [FILE]",
        )


def check_type_names(file: FileSection, source: Source) -> None:
    """Check that the base type and the types of the initial mix exist."""
    types = list(file.cluster.types or {})
    base = file.cluster.base
    if base is not None and base not in types:
        raise source.error(
            ("cluster", "base"), f"{{}} is {base!r}, which is no type; {nearest(base, types)}"
        )
    for name in file.cluster.start or {}:
        if name not in types:
            raise source.error(
                ("cluster", "start", name), f"{{}} is no type; {nearest(name, types)}"
            )


def check_sizes(file: FileSection, source: Source) -> None:
    """Check that a distribution of sizes has a size, and that sized queries are not batched."""
    if file.sizes is not None and file.size is None:
        raise source.error(
            ("sizes",), "{} needs to know what a size is; add a line such as: size: {most: 1000}"
        )
    if file.size is None:
        return
    if file.size.batch is not None and file.size.batch > file.size.most:
        raise source.error(
            ("size", "batch"),
            f"{{}} is above size.most of {file.size.most}, up to which variants are profiled; "
            "lower it, or raise most",
        )
    for task, section in file.tasks.items():
        for name, variant in section.variants.items():
            if variant.batch != 1:
                raise source.error(
                    ("tasks", task, "variants", name, "batch"),
                    f"{{}} is {variant.batch}, but queries have sizes: each is a batch of its "
                    "own; remove it",
                )


def check_deadline(file: FileSection, source: Source) -> None:
    """Check that the longest deadline covers every SLO and is within the retention of work."""
    most = file.deadline.most
    longest = max(file.slo, *(each.slo for each in file.slo_classes.values()), 0.0)
    if most is None:
        return
    if most < longest:
        raise source.error(
            ("deadline", "most"), f"{{}} is {most:g} s, but an SLO of the file is {longest:g} s; "
            "raise it",
        )  # fmt: skip
    if most > MOST_DEADLINE_S:
        raise source.error(
            ("deadline", "most"),
            f"{{}} is {most:g} s; work is kept for ten minutes, so {MOST_DEADLINE_S:g} s at most",
        )


def check_bounds(file: FileSection, source: Source) -> None:
    """Check that a task's least replicas fit its most, its slots and, all together, the cluster."""
    for name, task in file.tasks.items():
        least, most = task.replicas.least, task.replicas.most
        place = ("tasks", name, "replicas", "least")
        if most is not None and least > most:
            raise source.error(
                place, f"{{}} is {least}, and most is {most}; least must not be above it"
            )
        if least > task.slots:
            raise source.error(
                place, f"{{}} is {least}, but the task has {task.slots} slots; raise slots"
            )
    types, there = file.cluster.types, _workers(file)
    needed = sum(task.replicas.least for task in file.tasks.values())
    if not types and needed > max(len(file.tasks), there):
        raise source.error(
            ("cluster", "devices"),
            f"the tasks are to have {needed} replicas at least, but the cluster has "
            f"{there} workers; raise cluster.devices or lower replicas.least",
        )


def check_sharing(file: FileSection, source: Source) -> None:
    """Check that only CPU and emulated workers of ``cluster.devices`` share a device."""
    cluster = file.cluster
    if cluster.tasks_per_device == 1:
        return
    place = ("cluster", "tasks_per_device")
    if cluster.types or cluster.tiers:
        raise source.error(place, "{} divides cluster.devices, not types or tiers; remove it")
    gpu = next((each for each in cluster.devices or {} if each.startswith("cuda")), None)
    if gpu is not None:
        raise source.error(
            place,
            f"{{}} divides cpu and emulated devices; for several workers on one GPU write "
            f"{gpu}: NUMBER, and profile again: their profile is measured with all of them busy",
        )


def check_shares(file: FileSection, source: Source) -> None:
    """Check that only untied branches have shares and only leaf tasks have weights."""
    for name, task in file.tasks.items():
        if task.share != [0.0, 1.0] and file.branches == "tied":
            raise source.error(
                ("tasks", name, "share"),
                "{} says what share of the queries a task gets, but branches are tied: every "
                "query visits all of them; add a line branches: untied, or remove it",
            )
        if task.weight != 1.0 and task.children:
            raise source.error(
                ("tasks", name, "weight"),
                f"{{}} weighs the accuracy of a leaf task, but {name!r} has children; remove it",
            )


def check_memory(file: FileSection, source: Source) -> None:
    """Check that the devices under ``cluster.memory`` exist."""
    devices = list(file.cluster.devices or {})
    for device in file.cluster.memory:
        if device not in devices:
            raise source.error(
                ("cluster", "memory", device),
                f"{{}}: the cluster has no device {device!r}; {nearest(device, devices)}",
            )


def check_emulation(file: FileSection, source: Source) -> None:
    """Check that a cluster with emulated devices has a profile."""
    if "emulated" in (file.cluster.devices or {}) and not file.profiles:
        raise source.error(
            ("cluster", "devices", "emulated"),
            "emulated devices wait what a profile says and the file names none; add "
            "profiles: [FILE] or use cpu",
        )


def check_registry(file: FileSection, source: Source) -> None:
    """Check that Confluent's framing has a schema registry."""
    for key, value in (("input", file.input), ("results", file.results)):
        if value == "confluent" and not file.schema_registry:
            raise source.error(
                (key,),
                "{} is confluent, which needs a schema registry; add a line such as: "
                "schema_registry: http://localhost:8081",
            )


def check_weights(file: FileSection, source: Source) -> None:
    """Check that every argument ``weights`` names a file."""
    for task, section in file.tasks.items():
        for name, variant in section.variants.items():
            place = ("tasks", task, "variants", name, "arguments", "weights")
            weights = variant.arguments.get("weights")
            if weights is None:
                continue
            if not isinstance(weights, str):
                raise source.error(place, f"{{}} is {weights!r}; write the path of a file")
            if not (Path(source.path).parent / weights).is_file():
                raise source.error(
                    place,
                    f"{{}} is {weights!r}, which is no file in {source.path.parent}; train the "
                    "weights or correct the path",
                )


def check_tiers(file: FileSection, source: Source) -> None:
    """Check that the tiers that tasks and links name exist, and that shared tiers have devices."""
    tiers = file.cluster.tiers or {}
    for name, tier in tiers.items():
        if tier.per is None and tier.count is None and tier.most is None:
            raise source.error(
                ("cluster", "tiers", name),
                f"tier {name!r} has no devices; give their count, or write per: session where "
                "every session has its own",
            )
    for task, section in file.tasks.items():
        for at, tier_name in enumerate(section.tiers or ()):
            if tier_name not in tiers:
                place = ("tasks", task, "tiers", at)
                raise source.error(
                    place,
                    f"{{}} is {tier_name!r}, which is no tier; {nearest(tier_name, list(tiers))}",
                )
    for link in file.cluster.links:
        one, mark, other = link.partition(">")
        if not mark or one not in tiers or other not in tiers or one == other:
            raise source.error(
                ("cluster", "links", link),
                f"{{}} is no link; write TIER>TIER with two of the tiers {', '.join(tiers)}",
            )


def check_knobs(file: FileSection, source: Source) -> None:
    """Check that every ``$knob`` argument names a knob, and that a knob's options differ."""
    for task, section in file.tasks.items():
        if (section.knobs or section.tiers) and not file.cluster.tiers:
            raise source.error(
                ("tasks", task), "{} has knobs or tiers, but the cluster has no tiers; add "
                "cluster.tiers",
            )  # fmt: skip
        for knob, options in section.knobs.items():
            if len({str(option) for option in options}) < len(options):
                raise source.error(
                    ("tasks", task, "knobs", knob), "{} has an option twice; remove one"
                )
        for name, variant in section.variants.items():
            for argument, value in variant.arguments.items():
                filled = isinstance(value, str) and value.startswith("$")
                if filled and value[1:] not in section.knobs:
                    raise source.error(
                        ("tasks", task, "variants", name, "arguments", argument),
                        f"{{}} is {value!r}, but task {task!r} has no knob {value[1:]!r}; "
                        f"{nearest(value[1:], list(section.knobs))}",
                    )

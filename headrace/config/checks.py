"""Consistency checks of the pipeline file: tasks form one tree, names exist, limits hold.

``policy_checks.py`` has those of policies, ``device_checks.py`` those of devices. Every check
raises ``PipelineError`` with the line of the mistake.
"""

from collections.abc import Mapping
from pathlib import Path

from headrace.config.device_checks import (
    check_emulation,
    check_memory,
    check_shares,
    check_sharing,
    check_sizes,
    check_tiers,
    check_types,
)
from headrace.config.policy_checks import (
    check_dispatch,
    check_policies,
    check_replicas,
    check_traffic,
    check_workers,
    policies,
    workers_of,
)
from headrace.config.sections import FileSection, TaskSection
from headrace.config.yaml_source import Source, suggestion
from headrace.model_registry.references import is_reference
from schemas.pipeline import MOST_DEADLINE_S


def check(file: FileSection, source: Source) -> None:
    """Run every check; a mistake that causes others is checked before them."""
    check_children(file.tasks, source)
    check_tree(file.tasks, source)
    check_policies(file, source)
    check_dispatch(file, source)
    check_workers(file, source)
    check_ingress(file, source)
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


def check_ingress(file: FileSection, source: Source) -> None:
    """Check that every ingress has a partition of the input topic."""
    partitions, processes = file.input_partitions, file.cluster.ingress
    if partitions < processes:
        raise source.error(
            ("cluster", "ingress"),
            f"{{}} is {processes}, above input_partitions ({partitions}), so that some ingresses "
            f"would read nothing; write input_partitions: {processes} or more, or lower it",
        )


def check_egress(file: FileSection, source: Source) -> None:
    """Check that every egress has the same number of partitions.

    So ``egress_partitions`` may change under traffic: all records of a query reach one egress,
    including those sent before the change.
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
                    place, f"{{}} is {child!r}, which is no task; {suggestion(child, list(tasks))}"
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


def check_deadline(file: FileSection, source: Source) -> None:
    """Check that the longest deadline covers every SLO and is within the retention of work, and
    that every SLO is."""
    most = file.deadline.most
    slos: dict[tuple[str, ...], float] = {("slo",): file.slo}
    slos |= {("slo_classes", name): each.slo for name, each in file.slo_classes.items()}
    for place, slo_s in slos.items():
        _check_kept(place, slo_s, source)
    longest = max(slos.values())
    if most is None:
        return
    if most < longest:
        raise source.error(
            ("deadline", "most"), f"{{}} is {most:g} s, but an SLO of the file is {longest:g} s; "
            "raise it",
        )  # fmt: skip
    _check_kept(("deadline", "most"), most, source)


def _check_kept(place: tuple[str, ...], seconds: float, source: Source) -> None:
    if seconds > MOST_DEADLINE_S:
        raise source.error(
            place,
            f"{{}} is {seconds:g} s; work is kept for ten minutes, so {MOST_DEADLINE_S:g} s at "
            "most",
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
    types, there = file.cluster.types, workers_of(file)
    needed = sum(task.replicas.least for task in file.tasks.values())
    if not types and needed > max(len(file.tasks), there):
        raise source.error(
            ("cluster", "devices"),
            f"the tasks are to have {needed} replicas at least, but the cluster has "
            f"{there} workers; raise cluster.devices or lower replicas.least",
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
    """Check that every argument ``weights`` names a file, or a model in a registry."""
    for task, section in file.tasks.items():
        for name, variant in section.variants.items():
            place = ("tasks", task, "variants", name, "arguments", "weights")
            weights = variant.arguments.get("weights")
            if weights is None or is_reference(weights):
                continue
            if not isinstance(weights, str):
                raise source.error(place, f"{{}} is {weights!r}; write the path of a file")
            if not (Path(source.path).parent / weights).is_file():
                raise source.error(
                    place,
                    f"{{}} is {weights!r}, which is no file in {source.path.parent}; train the "
                    "weights or correct the path",
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
                        f"{suggestion(value[1:], list(section.knobs))}",
                    )

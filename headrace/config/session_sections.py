"""The search space of sessions in a pipeline file: knobs, tiers, links, objectives.

A task's variants and knobs span its settings; with several variants, ``task.variant`` is a knob.
Tiers span placements. A setting is named ``task/variant@knob=option,...``.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from control.problem.problem import PlanError
from control.problem.sample_sets import Truth
from control.problem.seats import SESSION_ID
from control.problem.session_space import VARIANT, SessionSpace, option_name
from control.problem.space import Knob, Space, Stage
from control.problem.tiers import Link, SessionTier
from headrace.config.field_types import objectives
from headrace.config.sections import FileSection, ProfilingSection, TaskSection, TierSection
from headrace.config.yaml_source import Source
from schemas.variant_id import variant_key


def session_space(file: FileSection, source: Source) -> SessionSpace:
    """Return the space of a pipeline file; raises ``PipelineError`` for one that is too large."""
    tiers = file.cluster.tiers or {}
    order = file.topological()
    parents = {child: task for task in order for child in file.tasks[task].children}
    try:
        space = Space(
            stages=tuple(_stage(task, parents, file.tasks[task], list(tiers)) for task in order),
            knobs=tuple(knob for task in order for knob in _knobs(task, file.tasks[task])),
            tiers=tuple(tiers),
            operators=_operators(file),
        )
    except PlanError as error:
        raise source.error(("tasks",), str(error)) from error
    accuracy, cost = objectives(source.values["slo"])
    profiling = file.profiling or ProfilingSection()
    truth, reference = _truth(file, space, source)
    _check_inputs(profiling, source)
    own = [name for name, tier in tiers.items() if tier.per == "session"]
    return SessionSpace(
        space=replace(space, truth=_named_truth(truth, reference, space)),
        tiers={name: _tier(tier) for name, tier in tiers.items()},
        links=_links(file),
        origin=own[0] if own else next(iter(tiers)),
        latency_s=file.slo,
        accuracy=accuracy,
        usd_per_h=cost,
        values={
            f"{task}.{knob}": {option_name(option): option for option in options}
            for task in order
            for knob, options in file.tasks[task].knobs.items()
        },
        variants={t: next(iter(s.variants)) for t, s in file.tasks.items() if len(s.variants) == 1},
        truth=truth,
        reference=reference,
        cache_bytes=profiling.cache,
        weight=file.weight,
        profilers=file.cluster.profilers if file.has_samples else 0,
        comm_s=file.comm,
        counts={name: here for name, tier in tiers.items() if (here := tier.devices_here)},
    )


def _operators(file: FileSection) -> str:
    """Return what the stages run, and what draws, answers and judges the samples."""
    runs = {
        variant_key(task, name): [variant.operator, variant.arguments, variant.paths, variant.batch]
        for task, section in file.tasks.items()
        for name, variant in section.variants.items()
    }
    scorer = file.labels.scorer if file.labels else None
    return json.dumps([runs, file.combine, file.workload, scorer], sort_keys=True, default=str)


def _truth(file: FileSection, space: Space, source: Source) -> tuple[Truth, int | None]:
    """Return the truth that profiles are judged by, and the reference configuration if there is
    one."""
    profiling = file.profiling or ProfilingSection()
    if profiling.truth == "feedback" and file.labels is None:
        raise source.error(
            ("profiling", "truth"),
            "{} is feedback, but the file has no labels; add `labels: {}`, and send labels to the "
            "topic",
        )
    return Truth(profiling.truth), _reference(profiling, space, source)


def _named_truth(truth: Truth, reference: int | None, space: Space) -> str:
    """Return the name of the truth in a space: scores by another truth are no history."""
    if truth is Truth.WORKLOAD:
        return ""
    return truth + ("" if reference is None else json.dumps(space.named(reference), sort_keys=True))


def _reference(profiling: ProfilingSection, space: Space, source: Source) -> int | None:
    """Return the configuration whose answers count as true; None with another truth."""
    options = {name: option_name(option) for name, option in profiling.reference.items()}
    if profiling.truth != "reference":
        if options:
            raise source.error(
                ("profiling", "reference"),
                f"{{}} is given, but profiling.truth is {profiling.truth}; write truth: reference, "
                "or leave it out",
            )
        return None
    known = {f"{knob.stage}.{knob.name}": knob.options for knob in space.knobs}
    for name in sorted(known.keys() - options.keys()):
        raise source.error(
            ("profiling", "truth"),
            f"{{}} is reference, but profiling.reference has no option of {name}; add {name}: "
            f"{known[name][-1]}, or another of {', '.join(known[name])}",
        )
    for name, option in options.items():
        if option not in known.get(name, ()):
            wanted = ", ".join(known.get(name, sorted(known)))
            raise source.error(
                ("profiling", "reference", name), f"{{}} is {option}; write one of {wanted}"
            )
    return space.index_of(options)


def _check_inputs(profiling: ProfilingSection, source: Source) -> None:
    """Check that ``profiling.inputs`` names sessions and brokers."""
    for session, broker in profiling.inputs.items():
        place = ("profiling", "inputs", session)
        if not SESSION_ID.fullmatch(session):
            raise source.error(place, "{} is no id of a session; write it as in cam-17: host:9092")
        if not re.fullmatch(r"\S+:\d+(,\S+:\d+)*", broker):
            raise source.error(
                place,
                f"{{}} is {broker!r}; write the address of a broker as in {session}: host:9092",
            )


def space_counts(space: Space) -> dict[str, int]:
    """Return the numbers of configurations, placements and plans of a space."""
    return {
        "configurations": space.configuration_count,
        "placements": space.placement_count,
        "plans": space.plans,
    }


def _stage(task: str, parents: Mapping[str, str], section: TaskSection, tiers: list[str]) -> Stage:
    allowed = tuple(section.tiers) if section.tiers is not None else tuple(tiers)
    return Stage(task, parents.get(task, ""), allowed, cpu=section.cpu, batched=section.batched)


def _knobs(task: str, section: TaskSection) -> list[Knob]:
    knobs = [
        Knob(task, name, tuple(option_name(option) for option in options))
        for name, options in section.knobs.items()
    ]
    if len(section.variants) > 1:
        knobs.insert(0, Knob(task, VARIANT, tuple(section.variants)))
    return knobs


def _tier(section: TierSection) -> SessionTier:
    return SessionTier(
        speed=section.speed,
        cpu_speed=section.cpu_speed,
        price=section.price,
        memory_bytes=float("inf") if section.memory is None else float(section.memory),
        own=section.per == "session",
    )


def _links(file: FileSection) -> dict[tuple[str, str], Link]:
    """Return every link in both directions; a given direction overrides the reversed other one.

    A link of rate 0 is as good as none: what crossed it would never arrive.
    """
    given = {
        (name.partition(">")[0], name.partition(">")[2]): Link(section.rate, section.delay)
        for name, section in file.cluster.links.items()
    }
    backward = {(other, one): link for (one, other), link in given.items()}
    both = {**backward, **given}
    return {hop: link for hop, link in both.items() if link.bytes_per_s > 0}

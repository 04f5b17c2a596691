"""The search space of sessions in a pipeline file: knobs, tiers, links, objectives.

A task's variants and knobs span its settings; with several variants, ``task.variant`` is a knob.
Tiers span placements. A setting is named ``task/variant@knob=option,...``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from control.policies.compass.search.space import Knob, Space, Stage
from control.policies.compass.search.tiers import Link, SessionTier
from control.problem.problem import PlanError
from headrace.config.checks import topological
from headrace.config.field_types import objectives
from headrace.config.sections import FileSection, ProfilingSection, TaskSection, TierSection
from headrace.config.yaml_source import Source
from schemas.pipeline import Pipeline, Variant
from schemas.variant_id import variant_key

if TYPE_CHECKING:
    from control.policies.compass.search.composition import Deployment

VARIANT = "variant"  # the knob of a task's variants


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpace:
    """The space of query plans, and a session's defaults. ``origin`` is the tier of its inputs;
    ``values`` maps "task.knob" to the value of each option. ``truth`` says what profiles are judged
    by, ``cache_bytes`` limits a profiler's cache of outputs."""

    space: Space
    tiers: Mapping[str, SessionTier]
    links: Mapping[tuple[str, str], Link]
    origin: str
    latency_s: float
    accuracy: float | None
    usd_per_h: float | None
    values: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, str]  # of tasks with a single variant
    truth: str = "workload"
    cache_bytes: int = 500_000_000

    def setting(self, task: str, configuration: int) -> str:
        """Return the name of a task's setting in a configuration, as in ``scan/scan@scale=0.5``."""
        named = {
            key.partition(".")[2]: option
            for key, option in self.space.named(configuration).items()
            if key.partition(".")[0] == task
        }
        variant = named.pop(VARIANT, self.variants.get(task, ""))
        knobs = ",".join(f"{knob}={option}" for knob, option in named.items())
        return f"{variant_key(task, variant)}@{knobs}" if knobs else variant_key(task, variant)

    def filled(self, variant: Variant, configuration: int = 0) -> Variant:
        """Return the variant with a configuration's options in place of ``$knob`` arguments."""
        named = self.space.named(configuration)

        def option(value: Any) -> Any:
            key = f"{variant.task}.{value[1:]}" if isinstance(value, str) else ""
            known = value[:1] == "$" if key else False
            return self.values[key][named[key]] if known and key in self.values else value

        arguments = {name: option(value) for name, value in variant.arguments.items()}
        return replace(variant, arguments=arguments)

    def variant(self, pipeline: Pipeline, task: str, configuration: int) -> Variant:
        """Return the variant of a task that a configuration names, with its options filled in."""
        variants = {variant.name: variant for variant in pipeline.task(task).variants}
        named = self.space.named(configuration).get(f"{task}.{VARIANT}", next(iter(variants)))
        return self.filled(variants[named], configuration)

    def deployment(self, memory: np.ndarray[Any, np.dtype[np.float64]]) -> "Deployment":
        """Return the factors of placements; raises ``PlanError`` for a missing link."""
        # Imported late: SciPy's import takes half a second, and every role imports this module.
        from control.policies.compass.search.placement_factors import deployment

        return deployment(self.space, self.tiers, self.links, self.origin, memory)


def session_space(file: FileSection, source: Source) -> SessionSpace:
    """Return the space of a pipeline file; raises ``PipelineError`` for one that is too large."""
    tiers = file.cluster.tiers or {}
    order = topological(file.tasks)
    parents = {child: task for task in order for child in file.tasks[task].children}
    try:
        space = Space(
            stages=tuple(_stage(task, parents, file.tasks[task], list(tiers)) for task in order),
            knobs=tuple(knob for task in order for knob in _knobs(task, file.tasks[task])),
            tiers=tuple(tiers),
        )
    except PlanError as error:
        raise source.error(("tasks",), str(error)) from error
    accuracy, cost = objectives(source.values["slo"])
    profiling = file.profiling or ProfilingSection()
    own = [name for name, tier in tiers.items() if tier.per == "session"]
    return SessionSpace(
        space=space,
        tiers={name: _tier(tier) for name, tier in tiers.items()},
        links=_links(file),
        origin=own[0] if own else next(iter(tiers)),
        latency_s=file.slo,
        accuracy=accuracy,
        usd_per_h=cost,
        values={
            f"{task}.{knob}": {_option(option): option for option in options}
            for task in order
            for knob, options in file.tasks[task].knobs.items()
        },
        variants={t: next(iter(s.variants)) for t, s in file.tasks.items() if len(s.variants) == 1},
        truth=profiling.truth,
        cache_bytes=profiling.cache,
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
        Knob(task, name, tuple(_option(option) for option in options))
        for name, options in section.knobs.items()
    ]
    if len(section.variants) > 1:
        knobs.insert(0, Knob(task, VARIANT, tuple(section.variants)))
    return knobs


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:g}"


def _tier(section: TierSection) -> SessionTier:
    return SessionTier(
        speed=section.speed,
        cpu_speed=section.cpu_speed,
        price=section.price,
        memory_bytes=float("inf") if section.memory is None else float(section.memory),
        own=section.per == "session",
    )


def _links(file: FileSection) -> dict[tuple[str, str], Link]:
    """Return every link in both directions; a given direction overrides the reversed other one."""
    given = {
        (name.partition(">")[0], name.partition(">")[2]): Link(section.rate, section.delay)
        for name, section in file.cluster.links.items()
    }
    backward = {(other, one): link for (one, other), link in given.items()}
    return {**backward, **given}

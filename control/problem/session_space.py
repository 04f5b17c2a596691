"""The choices of sessions: the space of query plans, the tiers with their devices, the links.

A setting is a variant with its knobs, named ``task/variant@knob=option,...``. A query plan names a
setting, a tier and quarters of a device for every task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from control.problem.paces import Paces
from control.problem.sample_sets import Truth
from control.problem.space import Space, leaves
from control.problem.tiers import Link, SessionTier
from schemas.pipeline import Pipeline, Variant
from schemas.variant_id import variant_id, variant_key

VARIANT = "variant"  # the knob of a task's variants
AGEING_S = 60.0  # of waiting, after which the weight of a session has doubled
MOST_WEIGHT = 1e9  # of a session: solvers take weights from 1e20 on as infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpace:
    """The space of query plans, and a session's defaults. ``origin`` is the tier of its inputs;
    ``values`` maps "task.knob" to the value of each option, ``counts`` tiers to their devices.
    A hop takes ``comm_s`` in addition to the time of its link. ``truth`` is the reference of
    profiles (``reference``: the configuration whose answers count as true), ``cache_bytes`` limits
    a profiler's cache, and ``profilers`` is the number of running profilers (0: the file has no
    samples for them). ``memory`` has the bytes of models by "task/variant", if known; ``paces`` of
    operators differ from their profile."""

    space: Space
    tiers: Mapping[str, SessionTier]
    links: Mapping[tuple[str, str], Link]
    origin: str
    latency_s: float
    accuracy: float | None
    usd_per_h: float | None
    values: Mapping[str, Mapping[str, Any]]
    variants: Mapping[str, str]  # of tasks with a single variant
    truth: Truth = Truth.WORKLOAD
    reference: int | None = None
    cache_bytes: int = 500_000_000
    weight: float = 1.0
    counts: Mapping[str, int] = field(default_factory=dict)
    profilers: int = 1
    comm_s: float = 0.0
    memory: Mapping[str, float] = field(default_factory=dict)
    paces: Paces = field(default_factory=dict)

    def with_links(self, links: Mapping[tuple[str, str], Link]) -> "SessionSpace":
        """Return the space with some links replaced by those of a session."""
        return replace(self, links={**self.links, **links})

    def with_paces(self, paces: Paces) -> "SessionSpace":
        """Return the space with the observed paces of operators."""
        return replace(self, paces=paces)

    def missing_link(self, tiers: Mapping[str, str]) -> tuple[str, str] | None:
        """Return the first hop between the ``tiers``, by task, that has no link; None: all have.

        Inputs start on the session's own tier, and results return there.
        """
        stages = self.space.stages
        into = [(tiers[s.parent] if s.parent else self.origin, tiers[s.name]) for s in stages]
        back = [(tiers[stages[leaf].name], self.origin) for leaf in leaves(stages)]
        hops = [hop for hop in (*into, *back) if hop[0] != hop[1]]
        return next((hop for hop in hops if hop not in self.links), None)

    def setting(self, task: str, configuration: int) -> str:
        """Return the name of a task's setting in a configuration, as in ``scan/scan@scale=0.5``."""
        return self.setting_of(task, self.space.named(configuration))

    def setting_of(self, task: str, options: Mapping[str, str]) -> str:
        """Return the name of a task's setting with the options by "task.knob".

        Raises ``KeyError`` for a missing option.
        """
        named = {k.name: options[f"{task}.{k.name}"] for k in self.space.knobs if k.stage == task}
        variant = named.pop(VARIANT, self.variants.get(task, ""))
        knobs = ",".join(f"{knob}={option}" for knob, option in named.items())
        return f"{variant_key(task, variant)}@{knobs}" if knobs else variant_key(task, variant)

    def pool(self, task: str, setting: str) -> str:
        """Return which stages may share a device with a stage: those of the same pool. The seats of
        a batched task are in batches of one setting (Compass, Appendix D.2)."""
        seats = any(stage.batched for stage in self.space.stages if stage.name == task)
        return setting if seats else ""

    def variant(self, pipeline: Pipeline, setting: str) -> Variant:
        """Return the variant of a setting, with its options in place of ``$knob`` arguments.

        The variant's name is that of the setting, so that hops and profiles tell settings apart.
        Raises ``KeyError`` for a variant or an option that the file lacks.
        """
        task, name = variant_id(setting)
        kind, _, knobs = name.partition("@")
        found = {v.name: v for v in pipeline.task(task).variants}[kind]
        options = dict(each.split("=", 1) for each in knobs.split(",") if each)
        known = {f"{task}.{knob}": option for knob, option in options.items()}
        return replace(self.filled(found, known), name=name)

    def filled(self, variant: Variant, options: Mapping[str, str]) -> Variant:
        """Return the variant with options by "task.knob" in place of ``$knob`` arguments."""

        def option(value: Any) -> Any:
            key = f"{variant.task}.{value[1:]}" if isinstance(value, str) else ""
            known = value[:1] == "$" if key else False
            return self.values[key][options[key]] if known and key in self.values else value

        arguments = {name: option(value) for name, value in variant.arguments.items()}
        return replace(variant, arguments=arguments)


def option_name(value: Any) -> str:
    """Return the name of a knob's option, with numbers in their shortest form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:g}"

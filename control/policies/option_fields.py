"""The options of policies: name in the pipeline file, type, default and permitted values.

``COMMON`` are the options of every policy: each is a field of ``schemas.pipeline.Policy``. A policy
kind adds options of its own, whose values are in ``Policy.options``:

    HEADWAY = Option(name="headway", type=OptionType.POSITIVE, default=1.5, meaning="...")
    HEADWAY.of(policy)
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from control.problem.lazy_references import object_named
from schemas.pipeline import Policy


class OptionType(Enum):
    """The permitted values of an option in the pipeline file, and the type they become."""

    POSITIVE = auto()  # float above 0
    AMOUNT = auto()  # float, 0 or above
    WHOLE = auto()  # int, 1 or above
    SHARE = auto()  # float above 0, at most 1
    CONFIDENCE = auto()  # float above 0.5, below 1
    FRACTION = auto()  # float, 0 to 1
    PART = auto()  # float, 0 or above, below 1
    COUNT = auto()  # int, 0 or above
    SECONDS = auto()  # a duration such as 300ms; float above 0
    SECONDS_OR_AUTO = auto()  # a duration, 0 among them, or auto; float or None
    SWITCH = auto()  # bool
    TEXT = auto()  # str
    CHOICE = auto()  # str, one of ``choices``
    RATES = auto()  # list of floats above 0; tuple
    WHOLE_BY_VARIANT = auto()  # "task/variant" -> int, 1 or above
    COUNT_BY_VARIANT = auto()  # "task/variant" -> int, 0 or above
    SHARE_BY_VARIANT = auto()  # "task/variant" -> float above 0, at most 1
    WHOLE_BY_NAME = auto()  # any name -> int, 1 or above
    AMOUNT_BY_NAME = auto()  # any name -> float, 0 or above


# Types of several values: a command line such as `loki:headroom=1.2` cannot express them.
SEVERAL = (
    OptionType.RATES,
    OptionType.WHOLE_BY_VARIANT,
    OptionType.COUNT_BY_VARIANT,
    OptionType.SHARE_BY_VARIANT,
    OptionType.WHOLE_BY_NAME,
    OptionType.AMOUNT_BY_NAME,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a policy.

    ``choices`` are the permitted texts of a ``CHOICE``, or the reference of a mapping with these
    keys. ``field`` is the field of ``Policy`` that holds a common option, "" for a kind's own
    option.
    """

    name: str
    type: OptionType
    meaning: str
    default: Any = None
    choices: tuple[str, ...] | str = ()
    field: str = ""

    def of(self, policy: Policy) -> Any:
        """Return the option's value under a policy."""
        if self.field:
            return getattr(policy, self.field)
        return policy.options.get(self.name, self.default)

    def permitted(self) -> tuple[str, ...]:
        """Return the texts that a ``CHOICE`` permits."""
        return tuple(object_named(self.choices)) if isinstance(self.choices, str) else self.choices


_QUANTILES = ("mean", "p50", "p90", "p95", "p99")

COMMON: tuple[Option, ...] = (
    Option(
        name="replicas",
        field="replicas",
        type=OptionType.COUNT_BY_VARIANT,
        meaning="workers by task/variant, instead of the variants' own",
    ),
    Option(
        name="batch",
        field="batch",
        type=OptionType.WHOLE_BY_VARIANT,
        meaning="largest batch by task/variant, instead of the variants' own",
    ),
    Option(
        name="latency",
        field="latency",
        type=OptionType.CHOICE,
        choices=_QUANTILES,
        meaning="profile quantile that counts as the latency of a batch",
    ),
    Option(
        name="rate",
        field="rate",
        type=OptionType.CHOICE,
        choices=_QUANTILES,
        meaning="profile quantile that gives the rate of a device",
    ),
    Option(
        name="interval",
        field="interval_s",
        type=OptionType.SECONDS,
        meaning="time between two plans, unless an event requires one sooner",
    ),
    Option(
        name="estimator",
        field="estimator",
        type=OptionType.CHOICE,
        choices="control.estimation.estimators:ESTIMATORS",
        meaning="estimator of the demand to plan for",
    ),
    Option(
        name="headroom",
        field="headroom",
        type=OptionType.POSITIVE,
        meaning="factor on the estimated demand",
    ),
    Option(
        name="routing",
        field="routing",
        type=OptionType.CHOICE,
        choices="control.problem.routes:ROUTINGS",
        meaning="rule that shares traffic among workers",
    ),
    Option(
        name="utilisation",
        field="utilisation",
        type=OptionType.SHARE,
        meaning="share of a worker's capacity that is used before less accurate workers get work",
    ),
    Option(
        name="dropping",
        field="dropping",
        type=OptionType.CHOICE,
        choices="control.per_query.dropping:RULES",
        meaning="rule that drops late items",
    ),
    Option(
        name="budget",
        field="budget",
        type=OptionType.CHOICE,
        choices="control.per_query.dropping:BUDGETS",
        meaning="latency budget of a task",
    ),
    Option(
        name="batching",
        field="batching",
        type=OptionType.CHOICE,
        choices="control.per_query.batching:BATCHERS",
        meaning="rule that closes a batch",
    ),
    Option(
        name="batch_delay",
        field="batch_delay_s",
        type=OptionType.SECONDS,
        meaning="longest time that an idle device waits for a full batch",
    ),
    Option(
        name="capped",
        field="capped",
        type=OptionType.SWITCH,
        meaning="limit batches of late items to the plan's batch size",
    ),
    Option(
        name="paced",
        field="paced",
        type=OptionType.SWITCH,
        meaning="plan with the slowdown of devices that workers observe",
    ),
)

# Of policies that solve a MILP (control/problem/mip.py; its SOLVERS are the choices).
TRAFFIC = Option(
    name="traffic",
    type=OptionType.SHARE_BY_VARIANT,
    default={},
    meaning="share of a task's items by task/variant; the task's other variants share the rest",
)
SOLVER = Option(
    name="solver",
    type=OptionType.CHOICE,
    choices=("highs", "cbc"),
    default="highs",
    meaning="MILP solver",
)
GAP = Option(
    name="gap",
    type=OptionType.POSITIVE,
    default=1e-6,
    meaning="relative gap at which the solver stops",
)
NODES = Option(
    name="nodes",
    type=OptionType.WHOLE,
    default=20_000,
    meaning="branch-and-bound nodes after which the solver stops",
)
SOLVE_WITHIN = Option(
    name="solve_within",
    type=OptionType.SECONDS,
    default=3.0,
    meaning="wall time after which a live solve ends with the best plan so far",
)
MILP: tuple[Option, ...] = (SOLVER, GAP, NODES, SOLVE_WITHIN)
# Of policies with a quick plan (control/policies/spec.py, ``quick``).
QUICK = Option(
    name="quick",
    type=OptionType.SWITCH,
    default=True,
    meaning="after a demand jump, worker loss or command, make a quick plan before the exact one",
)

# Of policies that scale accuracy over whole pipelines (control/policies/loki).
ACCURACY_LEAST = Option(
    name="accuracy_least",
    type=OptionType.FRACTION,
    default=0.0,
    meaning="minimum accuracy of served queries; the plan serves fewer queries to keep it",
)

# Of policies whose workers may follow tables (control/policies/ramsis).
LOADS = Option(
    name="loads",
    type=OptionType.RATES,
    default=(),
    meaning="queries/s that tables are made for; by default a grid found by refinement",
)
PRICE = Option(
    name="price",
    type=OptionType.AMOUNT,
    default=0.0,
    meaning="price of a late query, in units of accuracy",
)
LONGEST_RUN = Option(
    name="longest_run",
    type=OptionType.WHOLE,
    default=1,
    meaning="most queries that ingress sends to one worker in a row",
)
VIOLATION = Option(
    name="violation",
    type=OptionType.FRACTION,
    meaning="maximum share of late queries; tables then maximise accuracy, without a price",
)
DISPERSION = Option(
    name="dispersion",
    type=OptionType.POSITIVE,
    default=1.0,
    meaning="variance of arrival counts over their mean: 1 for Poisson, above 1 for Gamma arrivals",
)
DISCRETISATION = Option(
    name="discretisation",
    type=OptionType.CHOICE,
    choices=("fixed-length", "model-based"),
    default="fixed-length",
    meaning="levels of slack: equidistant, or at the latencies of the models",
)
STEPS = Option(
    name="steps",
    type=OptionType.WHOLE,
    default=100,
    meaning="number of equidistant levels of slack",
)
TABLES: tuple[Option, ...] = (
    LOADS, PRICE, LONGEST_RUN, VIOLATION, DISPERSION, DISCRETISATION, STEPS,
)  # fmt: skip

# Of policies with tables for a central queue: without runs, and for Poisson arrivals.
CENTRAL_TABLES: tuple[Option, ...] = (LOADS, PRICE, VIOLATION, DISCRETISATION, STEPS)


def with_options(policy: Policy, **values: Any) -> Policy:
    """Return a policy with other values of its own options."""
    return replace(policy, options={**policy.options, **values})

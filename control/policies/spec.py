"""A kind of policy as one value: its planner, rules, options and deviations from its paper.

Installed packages add kinds through entry points of the group ``headrace.policies``:

    [project.entry-points."headrace.policies"]
    queue-length = "queue_length:POLICY"

The entry point's name is the policy's, its object a ``PolicySpec``. It is loaded when its policy is
first named.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from control.policies.option_fields import COMMON, Option
from control.problem.problem import PlanError
from schemas.pipeline import Policy

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicySpec:
    """A kind of policy.

    Functions are given as references, "package.module:function", and imported when first called.

    ``plan``    ``Problem -> Allocation``; raises ``PlanError`` where no plan can be made
    ``quick``   ``Problem -> Allocation | None``: a plan within milliseconds, made by the control
                node itself, that serves until ``plan`` has ended; "": none
    ``choose``  ``TableProblem -> SelectionPlan``: the tables by which workers choose a model for
                each batch; "": workers run the plan's variant
    ``dispatch``
                ``Round -> pairs`` (control/policies/kairos/dispatch_rules.py): queries wait until
                the rule sends each to a free device; "": they queue at the devices
    ``withholds``
                with ``dispatch``: a query waits rather than go to a device on which it would be
                late
    ``central_queue``
                the tables of ``choose`` are for one queue of all workers: queries wait until a
                worker is free, and it gets a batch with its variant
                (operators/dispatch/table_dispatcher.py)
    ``estimate``, ``route``, ``drop``, ``batch``
                a rule's name in ``ESTIMATORS``, ``ROUTINGS``, ``RULES`` or ``BATCHERS``, or the
                reference of one; the pipeline file may name another for a policy of the kind
    ``common``  the kind's own defaults of other common options, by the option's name
    ``options`` options beside the common ones
    ``preset``  the kind's own defaults of those, by the option's name

    ``deviations`` are the differences from the paper that the kind is named after, one sentence
    each (docs/explanation lists them); ``usual`` is the policy of this kind and name with default
    options.
    """

    name: str
    summary: str
    plan: str
    quick: str = ""
    choose: str = ""
    dispatch: str = ""
    withholds: bool = False
    central_queue: bool = False
    estimate: str = "recent"
    route: str = "throughput"
    drop: str = "deadline"
    batch: str = "idle"
    common: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    preset: Mapping[str, Any] = field(default_factory=dict)
    needs_profile: bool = (
        True  # the kind cannot plan without a profile, and `validate` does not try it
    )
    follows_demand: bool = True  # a jump of demand triggers a replan
    task_selection: bool = False  # workers of a task with `selection` follow tables
    branches_as_seen: bool = False  # untied branches are planned by their observed shares
    mixes_variants: bool = False  # of a task, so that measured accuracies can compare them
    sessions: bool = False  # every session has a query plan of its own
    hardware_mode: bool = False  # uses the fewest devices while the best variants suffice
    deviations: tuple[str, ...] = ()
    solve_s: float = 0.2  # virtual seconds of a solve
    usual: Policy = field(init=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"the policy {self.name!r}: a name may hold letters, digits, '-' and '_' only"
            )
        for reference in filter(None, (self.plan, self.quick, self.choose, self.dispatch)):
            if not _REFERENCE.fullmatch(reference):
                raise ValueError(
                    f"the policy {self.name!r} refers to {reference!r}; "
                    "write package.module:function"
                )
        self._check_options()
        object.__setattr__(self, "usual", self.policy(self.name, {}))

    def _check_options(self) -> None:
        names = [option.name for option in self.every_option]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"the policy {self.name!r} has two options {twice[0]!r}; rename one")
        for name in (*self.common, *self.preset):
            if name not in names:
                raise ValueError(
                    f"the policy {self.name!r} has a default for {name!r}, which is none of its "
                    f"options; they are {', '.join(names)}"
                )

    @property
    def chooses_by_worker(self) -> bool:
        """Whether each worker chooses a model for each batch, by its own queue."""
        return bool(self.choose) and not self.central_queue

    @property
    def dispatches(self) -> bool:
        """Whether queries wait in a central queue until a worker is free."""
        return self.central_queue or bool(self.dispatch)

    @property
    def every_option(self) -> tuple[Option, ...]:
        """The common options and the kind's own."""
        return (*COMMON, *self.options)

    def policy(self, name: str, given: Mapping[str, Any]) -> Policy:
        """Return a policy of this kind; ``given`` are validated values by option name."""
        rules = {"estimator": self.estimate, "routing": self.route, "dropping": self.drop}
        usual = {**rules, "batching": self.batch, **self.common, **given}
        fields = {option.field: usual[option.name] for option in COMMON if option.name in usual}
        own = {option.name: option.default for option in self.options} | dict(self.preset)
        own |= {option.name: given[option.name] for option in self.options if option.name in given}
        return Policy(name=name, kind=self.name, options=own, **fields)


GROUP = "headrace.policies"


def installed_names() -> tuple[str, ...]:
    """Return the names of the installed policies, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def installed(name: str) -> PolicySpec | None:
    """Return the installed policy of that name, or None.

    Raises ``PlanError`` for a policy that cannot be loaded.
    """
    try:
        entry = _entry(name)
    except LookupError:
        return None
    return _loaded(entry)


@cache  # a look-up reads the metadata of every installed package
def _entry(name: str) -> EntryPoint:
    return entry_points(group=GROUP)[name]


@cache
def _loaded(entry: EntryPoint) -> PolicySpec:
    where = f"the policy {entry.name!r} (entry point {entry.value})"
    try:
        spec = entry.load()
    except Exception as error:  # of another package's module, such as a SyntaxError
        raise PlanError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}; reinstall or correct its "
            "package"
        ) from error
    if not isinstance(spec, PolicySpec):
        raise PlanError(f"{where} is a {type(spec).__name__}; it must be a PolicySpec")
    if spec.name != entry.name:
        raise PlanError(f"{where} calls itself {spec.name!r}; give both the same name")
    return spec

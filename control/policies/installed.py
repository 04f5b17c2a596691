"""Policies of installed packages: entry points of the group ``headrace.policies``.

    [project.entry-points."headrace.policies"]
    queue-length = "queue_length:POLICY"

The entry point's name is the policy's, its object a ``PolicySpec``. An entry point is loaded when
its policy is first named.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from control.policies.spec import PolicySpec
from control.problem.problem import PlanError

GROUP = "headrace.policies"


def names() -> tuple[str, ...]:
    """Return the names of the installed policies, sorted."""
    return tuple(sorted(entry_points(group=GROUP).names))


def installed(name: str) -> PolicySpec | None:
    """Return the installed policy of that name, or None.

    Raises ``PlanError`` for a policy that cannot be loaded.
    """
    found = tuple(entry_points(group=GROUP, name=name))
    return _loaded(found[0]) if found else None


@cache
def _loaded(entry: EntryPoint) -> PolicySpec:
    where = f"the policy {entry.name!r} (entry point {entry.value})"
    try:
        spec = entry.load()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise PlanError(f"{where} cannot be loaded: {error}; reinstall or mend its package") from (
            error
        )
    if not isinstance(spec, PolicySpec):
        raise PlanError(f"{where} is a {type(spec).__name__}; it must be a PolicySpec")
    if spec.name != entry.name:
        raise PlanError(f"{where} calls itself {spec.name!r}; give both the same name")
    return spec

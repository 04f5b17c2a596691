"""Paths of variants, from the root to each task, that fit the SLO.

A path exists only where every leaf task below it (untied: some leaf) can still be reached within
its compute budget, so that models need neither indicators nor a big M.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from control.problem.candidates import FITS_S, Choices, Config, Unit


class TooLarge(Exception):
    """The model would have too many nodes."""


@dataclass(frozen=True, slots=True)
class PathNode:
    """A path of units. ``accuracy`` is 0 except at leaf tasks."""

    task: str
    units: tuple[Unit, ...]
    configs: tuple[Config, ...]  # one for each unit, or none at all
    items: float
    accuracy: float
    parent: int  # index of the node it continues, -1 at the root

    @property
    def unit(self) -> Unit:
        """The unit at the end of the path."""
        return self.units[-1]


def nodes(choices: Choices, configured: bool, most: int) -> list[PathNode]:
    """Return every node that fits, parents first; raise ``TooLarge`` above ``most``."""
    slack = _slack(choices)
    found: list[PathNode] = []
    spent: list[float] = []
    root = choices.tasks[0]
    for task in choices.tasks:
        above = [
            (at, n) for at, n in enumerate(found) if task.name in choices.task(n.task).children
        ]
        parents = above if task is not root else [(-1, None)]
        for at, parent in parents:
            for unit, config, latency_s in _labels(choices.units[task.name], configured):
                total_s = latency_s + (spent[at] if parent else 0.0)
                if total_s > slack[task.name] + FITS_S:
                    continue
                found.append(_node(choices, task.name, unit, config, at, parent))
                spent.append(total_s)
                if len(found) > most:
                    raise TooLarge
    return found


def _labels(
    units: Sequence[Unit], configured: bool
) -> Iterator[tuple[Unit, tuple[Config, ...], float]]:
    for unit in units:
        if configured:
            for config in unit.configs:
                yield unit, (config,), config.latency_s
        else:
            yield unit, (), unit.configs[0].latency_s


def _node(
    choices: Choices, task: str, unit: Unit, config: tuple[Config, ...], at: int,
    parent: PathNode | None,
) -> PathNode:  # fmt: skip
    units = (*parent.units, unit) if parent else (unit,)
    items = parent.items * parent.unit.items[task] if parent else 1.0
    leaf = not choices.task(task).children
    accuracy = choices.accuracy(units) if leaf else 0.0
    configs = (*parent.configs, *config) if parent else config
    return PathNode(task, units, configs, items, accuracy, at)


def _slack(choices: Choices) -> dict[str, float]:
    """Return the latest end of each task, in seconds, at which its leaves are still in reach."""
    found: dict[str, float] = {}
    for task in reversed(choices.tasks):
        below = [found[child] - fastest_s(choices.units[child]) for child in task.children]
        found[task.name] = (
            (min if choices.tied else max)(below) if below else choices.budget_s[task.name]
        )
    return found


def fastest_s(units: Sequence[Unit]) -> float:
    """Return the shortest batch of any unit, in seconds; infinite without units."""
    return min((unit.configs[0].latency_s for unit in units), default=float("inf"))

"""Measure latency, accuracy and fan-out, without clock, processes or models.

The caller passes ``run`` (runs a batch of a size through the variant) and ``clock`` (seconds); the
result is a profile's content.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from profiles.measurements import FanOut, Latency, ProfileError

RunBatch = Callable[[int], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """The number of runs of a batch size: until ``budget_s`` are spent, but at least ``least`` and
    at most ``most``, after ``warm_up`` runs that do not count."""

    least: int = 20
    most: int = 100_000  # a run of 20 us needs many repeats before another process gets its turn
    budget_s: float = 1.5
    warm_up: int = 3

    def __post_init__(self) -> None:
        """Raise ``ProfileError`` unless 1 <= least <= most."""
        if not 1 <= self.least <= self.most:
            raise ProfileError(
                f"repeats are {self.least} to {self.most}; the least must be from 1 to the most"
            )


def latency_rows(
    run: RunBatch,
    clock: Clock,
    batches: Sequence[int],
    repeats: Repeats,
    started: Callable[[int], None] = lambda batch: None,
) -> tuple[Latency, ...]:
    """Return latency per batch size, by growing batch; ``started`` is called before each one."""
    rows = []
    for batch in sorted(set(batches)):
        started(batch)
        rows.append(latency_row(batch, timings(run, clock, batch, repeats)))
    return tuple(rows)


def timings(run: RunBatch, clock: Clock, batch: int, repeats: Repeats) -> list[float]:
    """Return the seconds of each counted run of the batch."""
    for _ in range(repeats.warm_up):
        run(batch)
    seconds: list[float] = []
    began = before = clock()
    while len(seconds) < repeats.most:
        run(batch)
        after = clock()
        seconds.append(after - before)
        before = after
        if len(seconds) >= repeats.least and after - began >= repeats.budget_s:
            break
    return seconds


def latency_row(batch: int, seconds: Sequence[float]) -> Latency:
    """Return the mean and quantiles of the runs of a batch, rounded to nanoseconds.

    A quantile is the smallest measured time that at least that share of the runs did not exceed,
    never a value between two runs: with few repeats p99 is the slowest run.
    """
    if not seconds:
        raise ProfileError(f"batch {batch} was never run; allow one repeat at least")
    p50, p90, p95, p99 = np.quantile(seconds, (0.5, 0.9, 0.95, 0.99), method="inverted_cdf")
    return Latency(
        batch=batch,
        repeats=len(seconds),
        mean_s=round(float(np.mean(seconds)), 9),
        p50_s=round(float(p50), 9),
        p90_s=round(float(p90), 9),
        p95_s=round(float(p95), 9),
        p99_s=round(float(p99), 9),
    )


def items_by_child(output: Any, children: Sequence[str]) -> dict[str, int]:
    """Return the number of items for each child in an operator's output; raise as ``items_for``."""
    return {child: len(items) for child, items in items_for(output, children).items()}


def items_for(output: Any, children: Sequence[str]) -> dict[str, Sequence[Any]]:
    """Return the items for each child in an operator's output.

    An only child's items may be a plain list; else a mapping names the children. Raises
    ``ProfileError`` for an output of another form or for an unknown child.
    """
    if isinstance(output, (list, tuple, np.ndarray)) and len(children) == 1:
        return {children[0]: list(output)}
    if not isinstance(output, Mapping):
        raise ProfileError(
            f"the operator returned {type(output).__name__}; a task with the children "
            f"{', '.join(children)} returns a mapping of child to list of items"
        )
    for child in output:
        if child not in children:
            raise ProfileError(f"the operator made items for {child!r}, no child of this task")
    return {child: output.get(child, ()) for child in children}


def fan_outs(outputs: Iterable[Any], children: Sequence[str]) -> dict[str, FanOut]:
    """Return the distribution of the number of items per child over the outputs."""
    if not children:
        return {}
    counted = [items_by_child(output, children) for output in outputs]
    return {child: fan_out([counts[child] for counts in counted]) for child in children}


def fan_out(counts: Sequence[int]) -> FanOut:
    """Return the mean and distribution of one child's item counts."""
    if not counts:
        raise ProfileError("no output was sampled; a fan-out needs one at least")
    shares = {count: seen / len(counts) for count, seen in sorted(Counter(counts).items())}
    return FanOut(sum(counts) / len(counts), shares)


def accuracy(scores: Sequence[float]) -> float:
    """Return the mean of scores, each in 0..1; raise ``ProfileError`` for none or one outside."""
    if not scores:
        raise ProfileError("no output was scored; accuracy needs one sample at least")
    for score in scores:
        if not 0 <= score <= 1:
            raise ProfileError(f"task_score returned {score}; it must be in 0..1")
    return float(np.mean(scores))


def default_batches(largest: int) -> tuple[int, ...]:
    """Return 1, 2, 4 ... up to the largest, which is always included."""
    powers = [1 << n for n in range(largest.bit_length()) if 1 << n < largest]
    return (*powers, largest)

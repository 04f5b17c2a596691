"""Planning by measured accuracy: the profile's accuracies of paths, corrected by those measured.

Only paths that serve are measured, and a drift often concerns more than them. So with a(p) the
profile's accuracy of path p, m(p) its measured one and r(p) = log(m(p) / a(p)),

    r(p)  =  sum over the variants v of p of (c + d(v))

c is common to all variants (least squares over the measured paths), and d(v) what a variant differs
(ridge regression on what c leaves, weight ``RIDGE``). A path that is not measured counts with the
r(p) that follows: what nothing is known of is taken to have drifted like the rest, so a plan does
not flee from a measured path to one that is only unmeasured. Not from a paper.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline

RIDGE = 0.1  # of a squared difference, against that of one path
MOST_PATHS = 20_000
LEAST = 1e-3  # accuracies below count as this: a logarithm needs more than 0
MOVED = 0.02  # of a path's accuracy, beyond which plans are made anew

Path = tuple[str, ...]


def corrected(
    table: ProfileTable, pipeline: Pipeline, measured: Mapping[str, float]
) -> ProfileTable:
    """Return the profile with every path's accuracy as measured, or as it follows from those, and
    the accuracies of variants likewise.

    ``measured`` is by path text; without any, the profile stands. Raises ``ProfileError`` for a
    variant without a profile.
    """
    known = {tuple(path.split(" > ")): accuracy for path, accuracy in measured.items()}
    every = list(islice(_paths(pipeline, pipeline.root.name), MOST_PATHS))
    known = {path: accuracy for path, accuracy in known.items() if path in set(every)}
    if not known:
        return table
    drift = _drift(table, known)
    paths = []
    for path in every:
        follows = table.along(path) * math.exp(sum(drift(key) for key in path))
        accuracy = known.get(path, min(1.0, follows))
        paths.append(PathAccuracy(path, accuracy, 1))
    entries = tuple(
        replace(each, accuracy=min(1.0, each.accuracy * math.exp(drift(each.key))))
        for each in table.entries
    )
    return ProfileTable(table.pipeline, entries, table.provenance, tuple(paths))


def moved(before: Mapping[str, float], now: Mapping[str, float]) -> str | None:
    """Return a path whose measured accuracy differs from the one that plans were made by."""
    for path in sorted({*before, *now}):
        one, other = before.get(path), now.get(path)
        if one is None or other is None or abs(one - other) > MOVED:
            return path
    return None


def _drift(table: ProfileTable, known: Mapping[Path, float]) -> "_Drift":
    listed = sorted(known)
    keys = sorted({key for path in listed for key in path})
    ratios = np.array([
        math.log(max(known[path], LEAST) / max(table.along(path), LEAST)) for path in listed
    ])  # fmt: skip
    rows = np.array([[float(path.count(key)) for key in keys] for path in listed])
    lengths = rows.sum(axis=1)
    common = float(lengths @ ratios / (lengths @ lengths))
    left = ratios - common * lengths
    own = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(len(keys)), rows.T @ left)
    return _Drift(common, dict(zip(keys, own.tolist(), strict=True)))


class _Drift:
    """The logarithm of measured over profiled accuracy, by variant."""

    def __init__(self, common: float, own: Mapping[str, float]) -> None:
        self._common, self._own = common, own

    def __call__(self, key: str) -> float:
        return self._common + self._own.get(key, 0.0)


def _paths(pipeline: Pipeline, task: str) -> "list[Path]":
    """Return the paths of variants from a task to each leaf below it."""
    found: list[Path] = []
    node = pipeline.task(task)
    below = [path for child in node.children for path in _paths(pipeline, child)] or [()]
    for variant in node.variants:
        found += [(variant.key, *path) for path in below]
    return found

"""Planning by measured accuracy: the profile's path accuracies, corrected by measurements.

Only paths in use are measured, but a drift often affects other paths as well. With a(p) the
profile's accuracy of path p, m(p) the measured one and r(p) = log(m(p) / a(p)),

    r(p)  =  sum over the variants v of p of (c + d(v))

c is common to all variants (least squares over the measured paths), and d(v) is a variant's
deviation (ridge regression on the residuals of c, weight ``RIDGE``). An unmeasured path gets the
r(p) of this model. Variants without measurements are thus assumed to have drifted like the rest, so
that a plan does not switch from a measured path to one only because it is unmeasured. Not from a
paper.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import numpy as np

from profiles.measurements import PathAccuracy
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline

RIDGE = 0.1  # weight of a squared deviation, relative to that of one path
MOST_PATHS = 20_000
LEAST = 1e-3  # lower bound on accuracies, whose logarithms are taken
MOVED = 0.02  # change of a path's accuracy beyond which a replan is due

Path = tuple[str, ...]


def corrected(
    table: ProfileTable, pipeline: Pipeline, measured: Mapping[str, float]
) -> ProfileTable:
    """Return the profile with measured accuracies of paths, and modelled ones of other paths and of
    variants.

    ``measured`` is by path text; if it has none of the pipeline's paths, the profile is returned
    unchanged. Paths with a variant without a profile are left out.
    """
    known = {tuple(path.split(" > ")): accuracy for path, accuracy in measured.items()}
    profiled = {each.key for each in table.entries}
    listed = islice(_paths(pipeline, pipeline.root.name), MOST_PATHS)
    every = [path for path in listed if profiled.issuperset(path)]
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
    """Return a path whose measured accuracy differs from the one in ``before``, or None."""
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

"""Look-ups of nodes by variant: its definition, its profiled latency, its accuracy."""

import contextlib
from functools import cache

from operators.serving.worker_rules import LatencyOf
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Variant
from schemas.variant_id import variant_id


def variant_of(pipeline: Pipeline, key: str) -> Variant:
    """Return the variant with key "task/variant"."""
    return next(v for t in pipeline.tasks for v in t.variants if v.key == key)


def latency_of(profile: ProfileTable, device: str, quantile: str = "p50") -> LatencyOf:
    """Return a function of variant key and batch size to profiled latency, seconds.

    It returns 0 for a variant that was not profiled on the device.
    """
    largest: dict[str, int] = {}
    for entry in profile.entries:
        key = entry.key
        with contextlib.suppress(ProfileError):
            largest[key] = profile.entry(entry.task, entry.variant, device).largest

    @cache
    def latency(key: str, batch: int) -> float:
        most = largest.get(key)
        if most is None:
            return 0.0
        task, variant = variant_id(key)
        return profile.latency_s(task, variant, device, min(batch, most), quantile)

    return latency


def accuracies(profile: ProfileTable) -> dict[str, float]:
    """Return profiled accuracies by "task/variant", and by path for measured whole paths."""
    variants = {e.key: e.accuracy for e in profile.entries}
    return variants | {" > ".join(each.path): each.accuracy for each in profile.paths}

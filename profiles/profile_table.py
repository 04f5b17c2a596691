"""The profile of a pipeline: load, derive and look up measurements.

A profile never extrapolates: a batch above the largest measured one is refused. Between two
measured batches latency is interpolated linearly; below the smallest the smallest counts.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

from profiles.measurements import EMULATED, QUANTILES, Entry, Latency, PathAccuracy, ProfileError
from schemas.variant_id import variant_id, variant_key

MOST_LOOKED_UP = 1_000_000  # batch or size: the lookup keeps a value for each up to the largest


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """All measurements of a pipeline, with lookups by (task, variant, device).

    A device without an entry of its own is looked up by kind: ``cuda:1`` finds the measurements of
    another GPU, ``emulated`` the first entry of any device. ``paths`` were measured with the
    weights of the entries; they hold on any device.
    """

    pipeline: str
    entries: tuple[Entry, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    paths: tuple[PathAccuracy, ...] = ()
    path_accuracy: Mapping[tuple[str, ...], float] = field(init=False, repr=False, compare=False)
    _entries: dict[tuple[str, str, str], Entry] = field(init=False, repr=False, compare=False)
    # (task, variant, device, quantile) -> seconds by batch; filled on first use, because workers
    # look up every batch they form.
    _curves: dict[tuple[str, str, str, str], list[float]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        """Raise ``ProfileError`` where two entries, or two paths, measure the same."""
        known: dict[tuple[str, str, str], Entry] = {}
        for entry in self.entries:
            key = (entry.task, entry.variant, entry.device)
            if key in known:
                raise ProfileError(f"{entry.name} is profiled twice; remove one of the two")
            known[key] = entry
        object.__setattr__(self, "_entries", known)
        found: dict[tuple[str, ...], float] = {}
        for each in self.paths:
            if each.path in found:
                name = " > ".join(each.path)
                raise ProfileError(f"the path {name} is profiled twice; remove one of the two")
            found[each.path] = each.accuracy
        object.__setattr__(self, "path_accuracy", found)

    def merge(self, other: "ProfileTable") -> "ProfileTable":
        """Return both tables' entries as one; raise ``ProfileError`` where both measured the same.

        For a path that both measured on their own devices, this table's accuracy counts.
        """
        more = tuple(each for each in other.paths if each.path not in self.path_accuracy)
        return ProfileTable(
            self.pipeline,
            self.entries + other.entries,
            {"merged": [*_sources(self), *_sources(other)]},
            self.paths + more,
        )

    @property
    def left_out(self) -> dict[str, str]:
        """Reasons why variants have no entry for a device, by the entry's name."""
        return {
            name: why
            for source in _sources(self)
            for name, why in source.get("left_out", {}).items()
        }

    def at_share(self, share: float) -> "ProfileTable":
        """Return the profile at a share of a device's time, above 0 and at most 1.

        Latencies are divided by the share, so throughput is multiplied; accuracy, fan-out, load
        time and memory stay as measured. Raises ``ProfileError`` for a share outside the range.
        """
        if not 0 < share <= 1:
            raise ProfileError(f"a share of {share} is none; it must be above 0 and at most 1")
        if share == 1:
            return self
        slowed = tuple(
            replace(entry, latency=tuple(_slowed(row, 1 / share) for row in entry.latency))
            for entry in self.entries
        )
        return ProfileTable(self.pipeline, slowed, {**self.provenance, "share": share}, self.paths)

    def per_query(self, shares: Mapping[int, float]) -> "ProfileTable":
        """Return the profile of a query whose size is drawn from ``shares`` (size -> probability).

        For planners without query sizes: every entry has batches of one query, with the mean over
        the sizes and the quantiles of the mixture of sizes at the same quantile. An entry that was
        measured for single items only stays unchanged: the items of its task have no sizes. Raises
        ``ProfileError`` for a size above the largest measured one.
        """
        entries = tuple(
            replace(entry, latency=(self._mixed(entry, sorted(shares.items())),))
            if entry.latency[-1].batch > 1
            else entry
            for entry in self.entries
        )
        return ProfileTable(self.pipeline, entries, self.provenance, self.paths)

    def _mixed(self, entry: Entry, shares: Sequence[tuple[int, float]]) -> Latency:
        def at(quantile: str) -> list[tuple[float, float]]:
            seconds = [
                (self.latency_s(entry.task, entry.variant, entry.device, size, quantile), share)
                for size, share in shares
            ]
            return sorted(seconds)

        mean_s = math.fsum(seconds * share for seconds, share in at("mean"))
        found = [_reached(at(name), int(name[1:]) / 100) for name in QUANTILES[1:]]
        p50_s, p90_s, p95_s, p99_s = accumulate(found, max)
        return Latency(
            batch=1, repeats=entry.latency[0].repeats, mean_s=mean_s, p50_s=p50_s, p90_s=p90_s,
            p95_s=p95_s, p99_s=p99_s,
        )  # fmt: skip

    def stretched(self, stretches: Mapping[str, float]) -> "ProfileTable":
        """Return the profile with latencies multiplied by the stretch of each kind of device."""
        if not stretches:
            return self
        measured = {(e.task, e.variant): e for e in self.entries}
        entries = dict(self._entries)
        for kind, factor in stretches.items():
            for task, variant in measured:
                with contextlib.suppress(ProfileError):
                    entry = self.entry(task, variant, kind)
                    slower = tuple(_slowed(row, factor) for row in entry.latency)
                    entries[task, variant, kind] = replace(entry, device=kind, latency=slower)
        return ProfileTable(self.pipeline, tuple(entries.values()), self.provenance, self.paths)

    def entry(self, task: str, variant: str, device: str) -> Entry:
        """Return the entry of the variant on the device or its kind; raise ``ProfileError``."""
        exact = self._entries.get((task, variant, device))
        if exact is not None:
            return exact
        measured = self._of(task, variant)
        for candidate in measured:
            if device == EMULATED or _kind(candidate.device) == _kind(device):
                return candidate
        devices = ", ".join(candidate.device for candidate in measured)
        raise ProfileError(
            f"no profile of {variant_key(task, variant)} on {device}, only on {devices}; "
            f"run `headrace profile` with --device {device}"
        )

    def latency_s(
        self, task: str, variant: str, device: str, batch: int, quantile: str = "p95"
    ) -> float:
        """Return the seconds of a batch at the quantile ("mean", "p50", "p90", "p95" or "p99").

        Raises ``ProfileError`` for a batch below 1 or above the largest measured one.
        """
        try:
            curve = self._curves[task, variant, device, quantile]
        except KeyError:
            curve = _curve(self.entry(task, variant, device), quantile)
            self._curves[task, variant, device, quantile] = curve
        if 0 < batch < len(curve):
            return curve[batch]
        raise ProfileError(
            f"{variant_key(task, variant)} on {device} was measured for batches of 1 to "
            f"{len(curve) - 1}, not {batch}; lower the batch or run `headrace profile` with "
            f"--batches up to {batch}"
        )

    def throughput(self, task: str, variant: str, device: str, batch: int) -> float:
        """Return items per second of one worker that runs full batches back to back."""
        return batch / self.latency_s(task, variant, device, batch, "mean")

    def accuracy(self, task: str, variant: str) -> float:
        """Return the variant's measured accuracy, 0..1, from its first entry."""
        return self._of(task, variant)[0].accuracy

    def product(self, path: Iterable[str]) -> float:
        """Return the product of the accuracies of a path's variants ("task/variant")."""
        return math.prod(self.accuracy(*variant_id(key)) for key in path)

    def along(self, path: tuple[str, ...]) -> float:
        """Return the accuracy of a path from the root to a leaf: measured, else the product."""
        measured = self.path_accuracy.get(path)
        return self.product(path) if measured is None else measured

    def children_mean(self, task: str, variant: str, child: str) -> float:
        """Return the mean number of items for a child that one item of the variant makes."""
        children = self._of(task, variant)[0].children
        if child not in children:
            raise ProfileError(
                f"the profile of {variant_key(task, variant)} has no fan-out to {child!r}, only to "
                f"{', '.join(children) or 'no task'}; run `headrace profile` again"
            )
        return children[child].mean

    def _of(self, task: str, variant: str) -> list[Entry]:
        found = [e for e in self.entries if e.task == task and e.variant == variant]
        if not found:
            known = ", ".join(dict.fromkeys(e.key for e in self.entries))
            raise ProfileError(
                f"no profile of {variant_key(task, variant)}, only of {known or 'nothing'}; "
                "run `headrace profile`"
            )
        return found


def _reached(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Return the smallest value that at least ``share`` of the weight does not exceed."""
    total = 0.0
    for value, weight in weighted:
        total += weight
        if total >= share - 1e-12:
            return value
    return weighted[-1][0]


def _slowed(row: Latency, factor: float) -> Latency:
    return replace(
        row,
        mean_s=row.mean_s * factor,
        p50_s=row.p50_s * factor,
        p90_s=row.p90_s * factor,
        p95_s=row.p95_s * factor,
        p99_s=row.p99_s * factor,
    )


def _curve(entry: Entry, quantile: str) -> list[float]:
    """Return seconds by batch from 0 (unused) to the largest measured one."""
    if quantile not in QUANTILES:
        raise ProfileError(f"no quantile {quantile!r}; profiles have {', '.join(QUANTILES)}")
    points = [(row.batch, float(getattr(row, f"{quantile}_s"))) for row in entry.latency]
    if points[-1][0] > MOST_LOOKED_UP:
        raise ProfileError(
            f"{entry.name} was measured up to {points[-1][0]}, and {MOST_LOOKED_UP} is the most "
            "that is looked up; measure in larger units, such as thousands of tokens"
        )
    curve = [points[0][1]] * (points[0][0] + 1)
    for (low, low_s), (high, high_s) in pairwise(points):
        for batch in range(low + 1, high + 1):
            curve.append(low_s + (high_s - low_s) * (batch - low) / (high - low))
    return curve


def _kind(device: str) -> str:
    return device.partition(":")[0]


def _sources(table: ProfileTable) -> list[Any]:
    return list(table.provenance.get("merged", [table.provenance]))

"""Slowdown of each kind of device against the profile, from workers' reports.

Workers count finished items, batches and the batches' seconds per variant. Two reports of one
worker give the number of batches and their mean size for each variant that ran. The profile's mean
latency for that size is the planned time of each batch. Per kind of device

    stretch = seconds taken / seconds planned

over about the last ``MEMORY`` batches. Plans of a ``paced`` policy apply it. Not from a paper.

A batch that is planned to take less than ``SHORT_S`` counts as that part of a batch. A stall of the
machine takes milliseconds however short the batch is, so shorter batches say less about a device.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from control.estimation.report_deltas import News
from profiles.measurements import ProfileError
from profiles.profile_table import ProfileTable
from schemas.count_names import count_name
from schemas.records import Report
from schemas.variant_id import variant_id

MEMORY = 200.0  # batches
FEWEST = 20.0  # batches before a stretch is reported
DRIFT = 1.15  # ratio to the planned stretch, either way, beyond which a replan is due
NOISE = 1.1  # below this stretch a kind counts as running at its profile's speed

SHORT_S = 0.0025

_BATCHES = "batches"


@dataclass(frozen=True, slots=True)
class Ran:
    """Batches with decaying weights, and their planned and actual seconds."""

    batches: float = 0.0
    planned_s: float = 0.0
    took_s: float = 0.0

    def followed_by(self, new: "Ran", memory: float) -> "Ran":
        """Return these batches with newer ones added; about ``memory`` batches count."""
        kept = max(0.0, 1.0 - new.batches / memory)
        return Ran(
            self.batches * kept + new.batches,
            self.planned_s * kept + new.planned_s,
            self.took_s * kept + new.took_s,
        )

    @property
    def stretch(self) -> float:
        """Actual seconds per planned second."""
        return self.took_s / self.planned_s


NONE_RAN = Ran()


@dataclass(frozen=True, slots=True)
class Slowdown:
    """The batches seen so far; ``observe`` returns the next state."""

    _ran: Mapping[str, Ran] = field(default_factory=dict)  # by kind of device

    def observe(self, report: Report, new: Ran) -> "Slowdown":
        """Return the state after a worker's report and its batches since the previous one."""
        if new.batches <= 0:
            return self
        ran = self._ran.get(report.device, NONE_RAN).followed_by(new, MEMORY)
        return Slowdown({**self._ran, report.device: ran})

    def replanned(self, growth: Callable[[str], float]) -> "Slowdown":
        """Return the state under a profile with ``growth`` times the planned seconds per kind of
        device. A kind whose planned seconds changed starts over."""
        kept = {k: ran for k, ran in self._ran.items() if 1 / NOISE <= growth(k) <= NOISE}
        return Slowdown(kept)

    def stretches(self) -> dict[str, float]:
        """Return the actual seconds per planned second, by kind, for kinds that are slower."""
        return {
            kind: ran.took_s / ran.planned_s
            for kind, ran in sorted(self._ran.items())
            if ran.batches >= FEWEST and ran.took_s > NOISE * ran.planned_s
        }

    def overall(self) -> float:
        """Return the actual seconds per planned second over all kinds, at least 1."""
        batches = planned_s = took_s = 0.0
        for ran in self._ran.values():
            batches += ran.batches
            planned_s += ran.planned_s
            took_s += ran.took_s
        if batches < FEWEST or took_s <= NOISE * planned_s:
            return 1.0
        return took_s / planned_s


def ran_since(news: News, profile: ProfileTable | None) -> Ran:
    """Return a worker's batches since its previous report; none for the first report of a process,
    whose counts cover an unknown interval."""
    if news.seconds is None:
        return NONE_RAN
    batches = planned_s = took_s = 0.0
    for name, count in news.report.counts.items():
        what, variant = count_name(name)
        if what != _BATCHES:
            continue
        more = news.since(name)
        # The first batch of a variant includes loading.
        if count > more > 0:
            items = news.since(f"finished/{variant}")
            each_s = _planned_s(profile, variant, news.report.device, items / more)
            if each_s > 0:
                batches += more * min(1.0, each_s / SHORT_S)
                planned_s += more * each_s
                took_s += news.since(f"busy_s/{variant}")
    return Ran(batches, planned_s, took_s)


def _planned_s(profile: ProfileTable | None, variant: str, device: str, size: float) -> float:
    if profile is None:
        return 0.0
    task, name = variant_id(variant)
    try:
        return profile.latency_s(task, name, device, max(1, round(size)), "mean")
    except ProfileError:
        return 0.0  # never profiled, so no plan uses it


def drifted_kind(
    planned_for: Mapping[str, float], seen: Mapping[str, float]
) -> tuple[str, float] | None:
    """Return a kind of device whose stretch differs much from the planned one, and the stretch."""
    for kind in sorted({*planned_for, *seen}):
        before, now = planned_for.get(kind, 1.0), seen.get(kind, 1.0)
        if now > before * DRIFT or now < before / DRIFT:
            return kind, now
    return None

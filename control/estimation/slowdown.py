"""How much slower than the profile are the devices of each kind? Workers' reports tell.

Workers count, per variant, the items they finished, their batches and the seconds that these
took. From two reports of one worker, for each variant that ran: so many batches of so many items
on average, planned to take the profile's mean for such a batch each. Of a kind of device

    stretch = seconds taken / seconds planned

over its last ``MEMORY`` batches or so. For plans of a policy that is ``paced``; not from a paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from control.estimation.report_deltas import News
from profiles.profile import ProfileError, ProfileTable
from schemas.count_names import count_name
from schemas.variant_id import variant_id

MEMORY = 200.0  # batches
FEWEST = 20.0  # batches, before anything is said
DRIFT = 1.15  # times what was planned for, or a part of it: a plan does not wait for its time
NOISE = 1.1  # a kind that is less slow than this keeps to its profile

_BATCHES = "batches"


@dataclass(frozen=True, slots=True)
class _Ran:
    """Batches of a kind, with weights that fade."""

    batches: float = 0.0
    planned_s: float = 0.0
    took_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Slowdown:
    """What was seen; ``observe`` gives the next state."""

    profile: ProfileTable | None
    _ran: Mapping[str, _Ran] = field(default_factory=dict)  # by kind of device

    def observe(self, news: News) -> "Slowdown":
        """After what a worker reported."""
        # What a worker, or a life of it, did before it was first heard has no length.
        new = self._new(news) if news.seconds is not None else _Ran()
        if new.batches <= 0:
            return self
        device = news.report.device
        old = self._ran.get(device, _Ran())
        kept = max(0.0, 1.0 - new.batches / MEMORY)
        ran = _Ran(
            old.batches * kept + new.batches,
            old.planned_s * kept + new.planned_s,
            old.took_s * kept + new.took_s,
        )
        return Slowdown(self.profile, {**self._ran, device: ran})

    def _new(self, news: News) -> _Ran:
        """What a worker ran since its report before."""
        batches = planned_s = took_s = 0.0
        for name, count in news.report.counts.items():
            what, variant = count_name(name)
            more = news.since(name) if what == _BATCHES else 0.0
            # The first batch of a variant tells of its loading, not of its pace.
            if count > more > 0:
                items = news.since(f"finished/{variant}")
                each_s = self._planned_s(variant, news.report.device, items / more)
                if each_s > 0:
                    batches += more
                    planned_s += more * each_s
                    took_s += news.since(f"busy_s/{variant}")
        return _Ran(batches, planned_s, took_s)

    def _planned_s(self, variant: str, device: str, size: float) -> float:
        if self.profile is None:
            return 0.0
        task, name = variant_id(variant)
        try:
            return self.profile.latency_s(task, name, device, max(1, round(size)), "mean")
        except ProfileError:
            return 0.0  # it was never measured, so nobody planned with it

    def stretches(self) -> dict[str, float]:
        """By kind of device the seconds that a planned second takes, where it is slower."""
        return {
            kind: ran.took_s / ran.planned_s
            for kind, ran in sorted(self._ran.items())
            if ran.batches >= FEWEST and ran.took_s > NOISE * ran.planned_s
        }


def drifted(
    planned_for: Mapping[str, float], seen: Mapping[str, float]
) -> tuple[str, float] | None:
    """A kind of device that is much slower or faster than was planned for, and its stretch."""
    for kind in sorted({*planned_for, *seen}):
        before, now = planned_for.get(kind, 1.0), seen.get(kind, 1.0)
        if now > before * DRIFT or now < before / DRIFT:
            return kind, now
    return None

"""Admission by SLO class: under overload the classes' shares follow their weights.

The plan's rate is divided among the classes by weighted max-min fairness:

- Each query of a class with a floor entitles the class to ``floor`` tokens, which no other class
  may take. All classes together get ``MOST`` of the rate in this way, so that they starve no class.
  Entitlements to more of it wait, at most those of the last ``SEEN_S`` or so.
- The rest goes to the classes by weight. A class that cannot use its share (its bucket is full, or
  it is idle and has one token) leaves it to the others by weight.
- Idle classes lend their tokens above one.

A class that sends less than its share therefore always finds a token, however rarely it sends, and
a single busy class gets the whole rate.
"""

from collections.abc import Iterable, Mapping
from math import exp

from schemas.pipeline import ClassShare

SEEN_S = 2.0  # time constant of the observed arrival rates
IDLE_QPS = 0.05 / SEEN_S  # a lower rate means no arrival for three time constants
KEPT = 1.0  # tokens that an idle class keeps for its next query
MOST = 0.95
ROUNDING = 1e-9


def _taken(bucket: "_Bucket") -> bool:
    if bucket.tokens < 1.0:
        return False
    bucket.tokens -= 1.0
    return True


class _Bucket:
    """The tokens of a class, its observed arrivals per second and the tokens that its floor still
    entitles it to (``owed``)."""

    __slots__ = ("burst", "floor", "owed", "rate_qps", "seen_s", "tokens", "weight")

    def __init__(self, share: ClassShare, now: float) -> None:
        self.weight = share.weight
        self.floor = share.floor
        self.burst = 1.0
        self.tokens = 1.0
        self.owed = 0.0
        self.rate_qps = 0.0
        self.seen_s = now

    def see(self, now: float) -> None:
        """Count an arrival."""
        self.rate_qps = self.arriving_qps(now) + 1.0 / SEEN_S
        self.seen_s = now
        self.owed = min(self.owed + self.floor, self.floor * self.rate_qps * SEEN_S)

    def arriving_qps(self, now: float) -> float:
        """Return the arrivals per second, exponentially weighted."""
        return self.rate_qps * exp(-max(0.0, now - self.seen_s) / SEEN_S)


class ClassAdmission:
    """Token buckets, one per class, that share ``rate`` queries/s and bursts of ``burst`` queries;
    with several classes each may send one more.

    ``shares`` has every possible class; "" is for queries without a class. ``rate`` None admits
    everything.
    """

    def __init__(self, shares: Mapping[str, ClassShare], now: float = 0.0) -> None:
        every = {"": ClassShare(), **shares}
        self._buckets = {name: _Bucket(share, now) for name, share in every.items()}
        self._only = self._buckets[""] if len(every) == 1 else None
        self._rate: float | None = None
        self._at = now

    def change(self, rate: float | None, burst: float, now: float) -> None:
        """Change the rate and keep the tokens; buckets without a rate were full and owed none."""
        was_full = self._rate is None
        self._fill(now)
        weights = sum(bucket.weight for bucket in self._buckets.values())
        kept = KEPT if self._only is None else 0.0
        for bucket in self._buckets.values():
            bucket.burst = kept + max(1.0 - kept, burst) * bucket.weight / weights
            bucket.tokens = bucket.burst if was_full else min(bucket.burst, bucket.tokens)
            bucket.owed = 0.0 if was_full else bucket.owed
        self._rate = rate

    def admit(self, now: float, slo_class: str = "") -> bool:
        """Take a token of the class; return whether there was one."""
        if self._rate is None and self._only is not None:
            return True
        bucket = self._buckets[slo_class]
        if self._only is None:
            bucket.see(now)
        self._fill(now)
        if self._rate is None:
            return True
        return _taken(bucket) or self._borrowed(bucket, now)

    def _borrowed(self, bucket: _Bucket, now: float) -> bool:
        """Take a token from the class and from what idle classes lend, so that a lone class may use
        the whole burst."""
        if self._only is not None:
            return False
        lenders = [bucket, *self._idle(now)]
        lent = [bucket.tokens, *(max(0.0, each.tokens - KEPT) for each in lenders[1:])]
        if sum(lent) < 1.0 - ROUNDING:
            return False
        due = 1.0
        for each, most in zip(lenders, lent, strict=True):
            part = min(due, most)
            each.tokens -= part
            due -= part
        return True

    def _idle(self, now: float) -> list[_Bucket]:
        return [b for b in self._buckets.values() if b.arriving_qps(now) < IDLE_QPS]

    def _fill(self, now: float) -> None:
        seconds, self._at = max(0.0, now - self._at), now
        if self._rate is None or seconds == 0.0:
            return
        left = self._rate * seconds
        if self._only is not None:
            self._only.tokens = min(self._only.burst, self._only.tokens + left)
            return
        owed = sum(bucket.owed for bucket in self._buckets.values())
        part = min(1.0, MOST * left / owed) if owed > 0.0 else 0.0
        for bucket in self._buckets.values():
            due = bucket.owed * part
            bucket.owed -= due
            given = min(due, bucket.burst - bucket.tokens)
            bucket.tokens += given
            left -= given
        idle = dict.fromkeys(self._idle(now))
        kept = [(b, KEPT if b in idle else b.burst) for b in self._buckets.values()]
        left = _share_out(left, kept)
        _share_out(left, [(b, b.burst) for b in idle])


def _share_out(left: float, buckets: Iterable[tuple[_Bucket, float]]) -> float:
    """Give the buckets ``left`` tokens by weight, each up to its limit; the excess of one goes to
    the others. Return the tokens that fit in none."""
    able = [(bucket, most) for bucket, most in buckets if bucket.tokens < most]
    while able and left > ROUNDING:
        by_weight = left / sum(bucket.weight for bucket, _ in able)
        full = [(b, most) for b, most in able if most - b.tokens <= by_weight * b.weight]
        if not full:
            for bucket, _ in able:
                bucket.tokens += by_weight * bucket.weight
            return 0.0
        for bucket, most in full:
            left -= most - bucket.tokens
            bucket.tokens = most
        able = [(bucket, most) for bucket, most in able if bucket.tokens < most]
    return left

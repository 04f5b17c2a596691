"""The rows of the sweeps over the modelled benchmark, as OUT_DIR/sweeps.jsonl keeps them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One point of a sweep with one seed and one method.

    Hours have ``planned`` and ``served``, shares of the sessions, and ``goodput``, sessions a
    minute that were served by a plan that truly meets their objectives. ``pace``: what a modelled
    second of planning takes. ``knobs`` has ``planned``, the share of queries with a plan, and
    ``usd_per_h``, the mean of the cheapest one of the queries that all methods can plan; ``costs``
    has both at the end of its searches. ``optimal`` and ``costs`` have the seconds of each query,
    infinite as None, and ``analysers`` those to the first plan. ``figures`` are named shares: in
    hours of each tier that is taken, and of running sessions that use their edge device; in
    ``searches`` what that sweep counts.
    """

    sweep: str
    point: str
    app: str
    seed: int
    method: str
    pace: float = 1.0
    planned: float = 0.0
    served: float = 0.0
    goodput: float = 0.0
    usd_per_h: float | None = None
    seconds: tuple[float | None, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)

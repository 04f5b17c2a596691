"""The policies that plans put in force, with the times at which they did."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.records import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A policy and the time at which it came into force, seconds since the epoch."""

    since_s: float
    policy: str


def policies_in_force(history: Sequence[Plan], first_s: float, last_s: float) -> Iterator[InForce]:
    """Yield the policies that were in force between two times, each with its start."""
    in_force = ""
    for plan in sorted(history, key=lambda each: each.epoch):
        if plan.issued_s > last_s:
            return
        following = [p for p in history if p.epoch > plan.epoch and p.issued_s <= first_s]
        if following or plan.settings.policy == in_force:
            continue
        in_force = plan.settings.policy
        yield InForce(since_s=plan.issued_s, policy=in_force)

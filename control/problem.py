"""What every planner is given, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass

from profiles.table import ProfileTable
from schemas.pipeline import Pipeline, Policy, Variant


class PlanError(ValueError):
    """No plan can be made of what was asked; the message says what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Which variants should the workers run?

    ``devices`` has one entry for every worker that may be used ("cpu", "cuda:0", "emulated").
    """

    pipeline: Pipeline
    policy: Policy
    slo_s: float
    demand_qps: float  # root queries per second
    devices: tuple[str, ...]
    profile: ProfileTable | None = None

    def batch(self, variant: Variant) -> int:
        """The largest batch of a variant under the policy."""
        return self.policy.batch.get(variant.key, variant.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many workers run a variant, in batches of at most ``batch``."""

    task: str
    variant: str
    batch: int
    count: int

    @property
    def key(self) -> str:
        """The variant's name in plans and reports: "task/variant"."""
        return f"{self.task}/{self.variant}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """A planner's answer, in the order of the pipeline; which worker does what is decided later.

    Where it is not ``feasible``, ``binding`` says what stands in the way.
    """

    replicas: tuple[Replicas, ...]
    feasible: bool = True
    binding: str = ""


def policy_named(pipeline: Pipeline, name: str) -> Policy | None:
    """The pipeline's policy of that name; "static" is always there."""
    known: Mapping[str, Policy] = {policy.name: policy for policy in pipeline.policies}
    return known.get(name) or (Policy(name="static") if name == "static" else None)

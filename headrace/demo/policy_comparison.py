"""``headrace demo --compare``: compare the scaling policy with every fixed plan of the file.

The runs follow one another on one running pipeline with the same arrivals and inputs; the criterion
is the share of parts right and in time (``demo_report.py``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from control.policies import fixed_policies
from headrace.demo.demo_report import DemoReport
from headrace.demo.environment import DemoEnvironment, EnvironmentOptions, demo_environment
from headrace.demo.load_script import loaded, material
from headrace.demo.script import scripted
from headrace.errors import PipelineError
from headrace.terminal import say

AROUND_S = 15.0  # warm-up and the change of policy before each run


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """Reports by policy, the scaling policy first."""

    runs: tuple[tuple[str, DemoReport], ...]
    left: tuple[str, ...] = ()  # processes alive after the teardown

    @property
    def sound(self) -> bool:
        """Whether no run lost a query and every process has ended."""
        return not self.left and all(report.sound for _, report in self.runs)

    @property
    def best(self) -> str | None:
        """The policy with the highest score; None if no score is known."""
        scores = {policy: report.whole.score for policy, report in self.runs}
        known = {policy: score for policy, score in scores.items() if score is not None}
        return max(known, key=lambda policy: known[policy]) if known else None

    def as_json(self) -> dict[str, Any]:
        """Return the comparison as one JSON object."""
        first = self.runs[0][1]
        return {
            "pipeline": first.conditions.pipeline,
            "seed": first.conditions.seed,
            "seconds": round(first.conditions.seconds, 3),
            "peak_qps": round(first.conditions.peak_qps, 3),
            "hardware_qps": first.conditions.hardware_qps,
            "machine": first.conditions.machine,
            "best": self.best,
            "runs": [{"policy": policy, **report.as_json()} for policy, report in self.runs],
            "processes_left": list(self.left),
        }


def compared(wish: EnvironmentOptions) -> PolicyComparison:
    """Run every policy; raises as ``demo_environment`` does, and ``PipelineError`` without fixed
    plans."""
    names = [policy.name for policy in fixed_policies(wish.file.pipeline)]
    if not names or wish.file.pipeline.policy in names:
        raise PipelineError(
            f"{wish.file.path}: --compare sets the file's policy {wish.file.pipeline.policy!r} "
            "against its fixed plans; name one that scales (loki) under policy and fixed ones, "
            "with replicas, under policies"
        )
    runs, left = demo_environment(wish, lambda stage: _runs(stage, names))
    return PolicyComparison(runs, left)


def _runs(stage: DemoEnvironment, fixed: Sequence[str]) -> tuple[tuple[str, DemoReport], ...]:
    wish = stage.wish
    script = scripted(wish.file, stage.plan, wish.seconds, wish.rate_qps)
    of = material(stage, script)
    # The file's own policy runs last, so that it stays in force on a permanent broker.
    order = [*fixed, wish.file.pipeline.policy]
    found: dict[str, DemoReport] = {}
    for at, policy in enumerate(order):
        left_s = (len(order) - at) * (script.seconds + AROUND_S)
        say(f"run {at + 1} of {len(order)}, policy {policy}: about {left_s:.0f} s left in all")
        title = f"run {at + 1} of {len(order)}, {policy}, "
        found[policy] = loaded(stage, script.only(policy), of, title)
    return tuple((policy, found[policy]) for policy in reversed(order))

"""The load of a demo, and the policy command during it.

If the pipeline scales accuracy and has a profile, demand rises from low to beyond the capacity of
its most accurate variants and falls again: the plan uses more devices, then faster variants, then
returns. The command changes from a fixed plan to the scaling policy. Otherwise the load is steady,
and a command changes from one fixed plan to another half-way.
"""

from dataclasses import dataclass, replace

from control.policies import fixed_policies, policy_named, spec_of
from control.policies.loki.allocate import allocate
from control.problem.problem import PlanError, Problem
from headrace.arrivals.load_phases import LoadPhase, Phases
from headrace.config.pipeline_file import PipelineFile
from headrace.planning.dry_run import PlanRequest, problem
from schemas.pipeline import Pipeline
from schemas.records import Plan

# Fractions of the most accurate variants' capacity on all devices, and of the demo's time.
LOW, HIGH = 0.08, 2.0
SHARES = (("quiet", 0.20), ("rising", 0.30), ("peak", 0.20), ("falling", 0.10), ("recovery", 0.20))
CHANGE_AT = 0.05  # of the time: early in quiet
# Above this rate a laptop that also runs the broker and the demo would be the bottleneck.
MOST_QPS = 300.0
# Of the plan's capacity, for a steady load.
LOAD = 0.5
LEAST_STEADY_QPS, MOST_STEADY_QPS = 2.0, 40.0
LEAST_QPS = 0.01  # a demand below this one is none
UNMEASURED_QPS = 20.0  # without a profiled capacity


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoLoad:
    """The load, its first policy, and the policy that a command applies (None: no command).

    ``hardware_qps`` is the demand that the most accurate variants can serve on all devices by the
    profile; None for a steady load.
    """

    phases: Phases
    policy: str
    then: str | None
    then_s: float  # from the start of the load
    hardware_qps: float | None = None

    def only(self, policy: str) -> "DemoLoad":
        """Return the same load under one policy without a command."""
        return replace(self, policy=policy, then=None)


def demo_load(file: PipelineFile, plan: Plan, seconds: float, rate_qps: float | None) -> DemoLoad:
    """Return the load for a pipeline with this first plan; ``rate_qps`` is the highest rate."""
    most = hardware_qps(file)
    if most is None:
        return steady_load(file.pipeline, plan, seconds, rate_qps)
    return hill(file.pipeline, most, seconds, rate_qps or min(MOST_QPS, HIGH * most))


def steady_load(pipeline: Pipeline, plan: Plan, seconds: float, rate_qps: float | None) -> DemoLoad:
    """Return one phase, and another fixed plan half-way if the file has one."""
    in_force = plan.settings.policy
    others = [p.name for p in pipeline.policies if p.name not in (in_force, "static")]
    rate = rate_qps or steady_qps(plan)
    return DemoLoad(
        phases=Phases((LoadPhase("steady", seconds, rate, rate),)),
        policy=in_force,
        then=others[0] if others else None,
        then_s=seconds / 2,
    )


def hill(pipeline: Pipeline, most_qps: float, seconds: float, peak_qps: float) -> DemoLoad:
    """Return phases that rise and fall; the command changes the file's first fixed plan to the
    scaling policy."""
    low, peak = _readable(peak_qps * LOW / HIGH), _readable(peak_qps)
    rates = {"quiet": (low, low), "rising": (low, peak), "peak": (peak, peak),
             "falling": (peak, low), "recovery": (low, low)}  # fmt: skip
    fixed = [policy.name for policy in fixed_policies(pipeline)]
    return DemoLoad(
        phases=Phases(
            tuple(LoadPhase(name, round(part * seconds, 3), *rates[name]) for name, part in SHARES)
        ),
        policy=fixed[0] if fixed else pipeline.policy,
        then=pipeline.policy if fixed else None,
        then_s=CHANGE_AT * seconds,
        hardware_qps=most_qps,
    )


def _readable(rate_qps: float) -> float:
    """Round a rate so that the command line that shows it sends it exactly."""
    return float(f"{rate_qps:.3g}")


def steady_qps(plan: Plan) -> float:
    """Return a rate that does not overload a laptop, in queries/s."""
    if plan.capacity_qps is None:
        return UNMEASURED_QPS
    return round(min(MOST_STEADY_QPS, max(LEAST_STEADY_QPS, LOAD * plan.capacity_qps)), 1)


def hardware_qps(file: PipelineFile) -> float | None:
    """Return the largest demand that the most accurate variants can serve on all devices, by the
    profile.

    None if the file's policy does not scale accuracy, without a profile, or if they serve no demand
    within the SLO.
    """
    policy = policy_named(file.pipeline, file.pipeline.policy)
    if policy is None or not spec_of(policy.kind).hardware_mode:
        return None
    asked = problem(file, PlanRequest(demands_qps=()))
    try:
        return (_most(asked) or None) if asked.profile is not None else None
    except PlanError:
        return None


def _most(asked: Problem) -> float:
    """Return the largest demand in hardware mode, by bisection to 1 %; 0 below ``LEAST_QPS``."""

    def carries(demand_qps: float) -> bool:
        return allocate(replace(asked, demand_qps=demand_qps)).mode == "hardware"

    low, high = 0.0, 1.0
    while carries(high):
        low, high = high, 2 * high
    while high - low > 0.01 * high and high > LEAST_QPS:
        middle = (low + high) / 2
        low, high = (middle, high) if carries(middle) else (low, middle)
    return low

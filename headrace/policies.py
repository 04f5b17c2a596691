"""The public interface for policies in separate packages.

    from headrace.policies import Allocation, PolicySpec, Problem, Replicas

    POLICY = PolicySpec(name="mine", summary="...", plan="my_package.plan:allocate")

A package registers ``POLICY`` as an entry point of the group ``headrace.policies``, under the
policy's name (docs/how-to/write-a-policy.md).
"""

from control.policies.option_fields import Option, OptionType
from control.policies.spec import PolicySpec
from control.problem.problem import Allocation, PlanError, Problem, Replicas

__all__ = [
    "Allocation",
    "Option",
    "OptionType",
    "PlanError",
    "PolicySpec",
    "Problem",
    "Replicas",
]

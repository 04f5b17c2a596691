"""What the control app may rent while a pipeline runs, from the pipeline file."""

from dataclasses import replace

from control.controller.rental import Rentable
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.planning.device_mix import MixRequest, mean_s, only_variant, pool_of


def rentable_of(file: PipelineFile) -> Rentable | None:
    """Return what can be rented; None unless ``cluster.scale`` says that somebody rents.

    Raises ``PlanError`` as ``pool_of`` does.
    """
    budget = file.cluster.budget
    if not file.cluster.rents or budget is None:
        return None
    filed, _ = pool_of(file, MixRequest())
    variant, table = only_variant(file), planning_profile(file)
    started = dict(file.cluster.devices)

    def pool(sizes: SizeDistribution) -> Pool:
        latency_s = tuple(
            tuple(mean_s(table, variant, each.name, size) for size in sizes.sizes)
            for each in filed.types
        )
        return replace(filed, sizes=sizes, latency_s=latency_s)

    return Rentable(
        sizes=filed.sizes,
        pool=pool,
        budget=budget,
        start=tuple(started.get(each.name, 0) for each in filed.types),
        boot_s=tuple(each.boot_s for each in file.cluster.types),
    )

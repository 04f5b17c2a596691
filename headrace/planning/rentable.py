"""The devices that the control app may rent while a pipeline runs, from the pipeline file."""

from dataclasses import replace

import numpy as np

from control.controller.rental import Rentable
from control.policies.kairos.mix_play import LEAST_QUERIES, QueryDraws
from control.policies.kairos.provisioning import Pool
from control.policies.kairos.query_sizes import SizeDistribution
from headrace.config.pipeline_file import PipelineFile
from headrace.config.profile_files import planning_profile
from headrace.planning.device_mix import MixRequest, by_size, only_variant, pool_of

BLOCKS = 2  # of ``LEAST_QUERIES`` each: the queries of the longest play
SEED = 0  # plays of equal problems have equal results


def rentable_of(file: PipelineFile) -> Rentable | None:
    """Return what can be rented; None unless ``cluster.scale`` enables renting.

    Raises ``PlanError`` as ``pool_of`` does.
    """
    budget = file.cluster.budget
    if not file.cluster.rents or budget is None:
        return None
    filed, _ = pool_of(file, MixRequest())
    variant, table = only_variant(file), planning_profile(file)
    started, names = dict(file.cluster.devices), [each.name for each in filed.types]

    def pool(sizes: SizeDistribution) -> Pool:
        mean_s, p95_s = (by_size(table, variant, names, sizes, q) for q in ("mean", "p95"))
        return replace(filed, sizes=sizes, latency_s=mean_s, worst_s=p95_s)

    return Rentable(
        sizes=filed.sizes,
        pool=pool,
        budget=budget,
        start=tuple(started.get(each.name, 0) for each in filed.types),
        boot_s=tuple(each.boot_s for each in file.cluster.types),
        draws=query_draws(np.random.default_rng(SEED)),
    )


def query_draws(rng: np.random.Generator) -> QueryDraws:
    """Return the random draws of queries with which mixes are played.

    The draws are stratified: ``LEAST_QUERIES`` in a row have every part of both distributions once,
    so that even the shortest play has the wanted rate and sizes, in random order.
    """
    gaps, uniforms = [], []
    for _ in range(BLOCKS):
        gaps.append(-np.log1p(-_stratified(rng)))
        uniforms.append(_stratified(rng))
    unit = np.concatenate(gaps)
    return QueryDraws(
        tuple((unit / unit.mean()).tolist()), tuple(np.concatenate(uniforms).tolist())
    )


def _stratified(rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return numbers from (0, 1), one in each of as many equal parts, in random order."""
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        rng.permutation(LEAST_QUERIES) + 0.5
    ) / LEAST_QUERIES
    return found

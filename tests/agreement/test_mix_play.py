"""Replaying the dispatch rule alone gives the same capacity of a mix as the live nodes."""

from pathlib import Path

import numpy as np
import pytest

from control.policies import POLICIES
from control.policies.kairos.mix_play import MixProblem
from control.policies.kairos.mix_play import mix_capacity as played
from control.policies.kairos.renting import bound_of
from headrace.config.pipeline_file import read_pipeline_file
from headrace.planning.device_mix import MixRequest, counts_by_type, pool_of, with_mix
from headrace.planning.rentable import query_draws
from headrace.simulation.capacity_search import CapacityRequest, capacity
from tests.typed_files import RANK, a_typed_file


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["kairos", "threshold"])
@pytest.mark.parametrize("mix", [pytest.param((2, 0), marks=pytest.mark.slow), (1, 3)])
def test_a_replay_of_the_dispatch_rule_carries_the_same_load_as_the_nodes(
    kind: str, mix: tuple[int, int], tmp_path: Path
) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path, RANK.replace("slo: 100ms", "slo: 300ms")))
    pool = pool_of(file, MixRequest())[0]
    problem = MixProblem(
        pool=pool, policy=POLICIES[kind].usual, mix=mix, bound_qps=bound_of(pool, mix),
        draws=query_draws(np.random.default_rng(0)),
    )  # fmt: skip
    qps = played(problem)
    searched = capacity(
        CapacityRequest(
            file=with_mix(file, counts_by_type(pool, mix)), policy=kind, start_qps=qps,
            first_step=1.04,
        )
    )  # fmt: skip
    assert searched.best is not None
    assert qps == pytest.approx(searched.best.qps, rel=0.05)

from itertools import product
from pathlib import Path

import pytest

from benchmarks.papers.kairos import MODELS, write
from benchmarks.papers.kairos_cases import DISPATCHERS, HOPS, SLOW_HOPS
from benchmarks.papers.kairos_claims import (
    FIGURE_MODEL,
    GAINS,
    IDLE_ONLY,
    OTHERS,
    RANDOM,
    RULES,
    SHORT_SLO,
    TOP,
    claim_searches,
    matrix_mixes,
)
from benchmarks.papers.kairos_compare import HOMOGENEOUS, Search
from benchmarks.papers.kairos_sections import first_mixes
from tests.unit.benchmarks.test_papers_kairos import a_data_folder


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write(a_data_folder(tmp_path, largest=1000), tmp_path / "out")
    return tmp_path / "out"


def test_every_claim_has_its_searches(out: Path) -> None:
    found = claim_searches(out, MODELS, 2)
    firsts = first_mixes(out)
    asked = {(x.model, x.row, x.mix, x.seed, x.case) for x in found}
    assert {
        (model, rule, firsts[model], seed, "trace")
        for model, rule, seed in product(MODELS, OTHERS, (0, 1))
    } <= asked
    cases = {(x.model, x.case, x.row) for x in found if x.case != "trace"}
    assert cases == {
        *product(MODELS, GAINS, ("kairos", HOMOGENEOUS)),
        *product(MODELS, [HOPS], ("kairos", IDLE_ONLY)),
        *product([SHORT_SLO], [SLOW_HOPS], ("kairos", IDLE_ONLY)),
        *product([FIGURE_MODEL], DISPATCHERS, ["kairos"]),
    }
    best, others = matrix_mixes(out)
    assert (len(best), len(others)) == (TOP, RANDOM)
    assert {
        (FIGURE_MODEL, rule, each.counts, 0, "trace")
        for rule, each in product(RULES, (*best, *others))
    } <= asked


def test_a_larger_budget_has_more_base_devices_to_compare_with(out: Path) -> None:
    def base(found: list[Search], case: str) -> set[int]:
        return {x.mix[0] for x in found if x.case == case and x.row == HOMOGENEOUS}

    found = claim_searches(out, ("rm2",), 1)
    assert [base(found, case) for case in ("QoS x1.2", "$ 5 an hour", "$ 10 an hour")] == [
        {4}, {9}, {19},
    ]  # fmt: skip

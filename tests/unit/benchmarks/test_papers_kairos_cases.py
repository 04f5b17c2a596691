import math

import pytest

from benchmarks.papers.kairos_cases import authors_gaps, normal_sizes
from control.policies.kairos.query_sizes import parsed


def test_a_normal_distribution_of_sizes_has_its_mean_and_deviation() -> None:
    sizes = parsed(normal_sizes(400, 150), "normal")
    assert math.fsum(sizes.probabilities) == pytest.approx(1.0)
    assert sizes.sizes[-1] == 1000
    # Sizes are rounded up to classes of 10, and the left tail is cut off.
    assert sizes.mean == pytest.approx(406, abs=3)


@pytest.mark.parametrize("qps", [100.0, 4000.0])
def test_the_gaps_of_the_artifact_are_whole_milliseconds_of_the_rate(qps: float) -> None:
    gaps = authors_gaps(0, 20_000, qps)
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert gaps.var() == pytest.approx(qps / 1e3, rel=0.05)  # 1 in a Poisson process
    assert (gaps * 1e3 / qps % 1).max() == pytest.approx(0.0, abs=1e-9)

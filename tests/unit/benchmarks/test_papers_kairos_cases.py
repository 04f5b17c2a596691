import math
from pathlib import Path

import pytest

from benchmarks.papers.kairos import write
from benchmarks.papers.kairos_cases import (
    HOPS,
    REPEATS,
    SLOW_HOPS,
    TRACE,
    authors_gaps,
    case_file,
    normal_sizes,
    slower,
)
from control.policies.kairos.query_sizes import parsed_sizes
from headrace.config.profile_files import planning_profile
from tests.unit.benchmarks.test_papers_kairos import a_data_folder


def test_a_normal_distribution_of_sizes_has_its_mean_and_deviation() -> None:
    sizes = parsed_sizes(normal_sizes(400, 150), "normal")
    assert math.fsum(sizes.probabilities) == pytest.approx(1.0)
    assert sizes.sizes[-1] == 1000
    # Sizes are rounded up to classes of 10, and the left tail is cut off.
    assert sizes.mean == pytest.approx(406, abs=3)


@pytest.mark.parametrize("qps", [100.0, 4000.0])
def test_artifact_gaps_are_whole_milliseconds_at_the_rate(qps: float) -> None:
    gaps = authors_gaps(0, 20_000, qps)
    assert gaps.mean() == pytest.approx(1.0, rel=0.02)
    assert gaps.var() == pytest.approx(qps / 1e3, rel=0.05)  # 1 in a Poisson process
    assert (gaps * 1e3 / qps % 1).max() == pytest.approx(0.0, abs=1e-9)


def test_measured_repeats_have_a_spread_and_hops_a_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(a_data_folder(tmp_path, largest=1000), out)
    repeats, means = (case_file(out, "rm2", case) for case in (REPEATS, TRACE))
    noisy, exact = (planning_profile(each).entries[0].latency[0] for each in (repeats, means))
    assert noisy.p99_s > noisy.p50_s
    assert exact.p99_s == exact.p50_s
    assert case_file(out, "rm2", HOPS).pipeline.comm_s > means.pipeline.comm_s == 0.0
    hop_s, slow_s = (case_file(out, "rm2", each).pipeline.comm_s for each in (HOPS, SLOW_HOPS))
    assert slow_s * slower(SLOW_HOPS) == pytest.approx(hop_s)


def test_dispatchers_share_the_queries(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(a_data_folder(tmp_path, largest=1000), out)
    file = case_file(out, "rm2", "4 dispatchers")
    assert file.cluster.ingress == file.pipeline.ingress == 4
    assert file.pipeline.root.slots >= 200  # of its devices each reads one

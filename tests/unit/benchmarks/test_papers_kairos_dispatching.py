"""The section of the Kairos page on hops and several dispatchers."""

from benchmarks.papers.kairos_cases import HOPS, SLOW_HOPS
from benchmarks.papers.kairos_claims import IDLE_ONLY
from benchmarks.papers.kairos_compare import Search
from benchmarks.papers.kairos_dispatching import dispatching_section

MIX, MANY = (1, 0, 13, 0), (14, 0, 182, 0)


def test_the_lead_is_judged_with_hops_and_dispatchers_against_one() -> None:
    found = [
        Search("rm2", "kairos", "kairos", MIX, 0, 140.0),
        Search("rm2", "kairos", "kairos", MIX, 0, 133.0, case=HOPS),
        Search("rm2", IDLE_ONLY, "kairos:lead=0ms", MIX, 0, 119.7, case=HOPS),
        Search("ncf", "kairos", "kairos", MIX, 0, 7000.0),
        Search("ncf", "kairos", "kairos", MIX, 0, 6300.0, case=SLOW_HOPS),
        Search("ncf", IDLE_ONLY, "kairos:lead=0ms", MIX, 0, 5670.0, case=SLOW_HOPS),
        Search("rm2", "kairos", "kairos", MANY, 0, 2000.0, case="1 dispatcher"),
        Search("rm2", "kairos", "kairos", MANY, 0, 1950.0, case="2 dispatchers"),
    ]
    text = dispatching_section(found)
    assert "| rm2 | 1 | 1+0+13+0 | 140/s | 0.95 | 10 % |" in text
    assert "| ncf | 1 | not run | not run | not run | not run |" in text
    assert "| ncf | 10 | 1+0+13+0 | 7000/s | 0.90 | 10 % |" in text
    assert "| 2 dispatchers | 1950/s | 0.975 |" in text
    assert "| 4 dispatchers | not run | not run |" in text

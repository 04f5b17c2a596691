"""headrace capacity: the highest rate that meets the SLO."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.kairos_climb import carries
from control.policies import known_kinds, spec_of
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import ArrivalsError
from headrace.planning.device_mix import with_mix
from headrace.simulation.capacity_search import CapacityRequest, capacity
from tests.typed_files import RANK, a_typed_file

ONE_SIZE = "size,probability\n100,1\n"


def asked(path: Path, mix: dict[str, int], policy: str, queries: int = 600) -> CapacityRequest:
    file = with_mix(read_pipeline_file(path), mix)
    return CapacityRequest(file=file, policy=policy, queries=queries)


@pytest.mark.thorough
def test_the_capacity_is_the_highest_rate_that_keeps_the_slo_to_one_percent(
    tmp_path: Path,
) -> None:
    # One device, 20 ms for each query, 100 ms: an M/D/1 queue near 50/s.
    request = asked(a_typed_file(tmp_path, sizes=ONE_SIZE), {"gpu": 1}, "fcfs")
    found = capacity(request)
    assert found.best is not None
    assert 25 < found.best.qps < 50
    assert found.best.attainment >= 0.99
    assert carries(request, found.best.qps)
    assert not carries(request, found.best.qps * 1.03)


@pytest.mark.thorough
def test_two_devices_carry_more_than_twice_as_much_as_one(tmp_path: Path) -> None:
    path = a_typed_file(tmp_path, sizes=ONE_SIZE)
    one, two = (capacity(asked(path, {"gpu": n}, "kairos")).best for n in (1, 2))
    assert one is not None
    assert two is not None
    assert 2 * one.qps < two.qps < 100


@pytest.mark.thorough
def test_the_matching_carries_more_than_first_come_first_served(tmp_path: Path) -> None:
    path = a_typed_file(tmp_path)
    mix = {"gpu": 1, "slow": 3}
    kairos, fcfs = (capacity(asked(path, mix, policy)).best for policy in ("kairos", "fcfs"))
    assert kairos is not None
    assert fcfs is None or kairos.qps > 1.3 * fcfs.qps


def with_spread(path: Path) -> Path:
    """Give every latency a spread about its mean: one in twenty takes at least twice as long."""
    profile = path.with_name("profile.json")
    document = json.loads(profile.read_text(encoding="utf-8"))
    for row in (row for entry in document["entries"] for row in entry["latency"]):
        quantiles = {"p50_s": 0.85, "p90_s": 1.4, "p95_s": 2.0, "p99_s": 3.0}
        row |= {name: times * row["mean_s"] for name, times in quantiles.items()}
    profile.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_repeats_with_a_spread_are_drawn_and_miss_the_slo_at_a_rate_that_means_keep(
    tmp_path: Path,
) -> None:
    path = a_typed_file(tmp_path, sizes=ONE_SIZE)
    assert carries(asked(path, {"gpu": 1}, "fcfs"), 34.0)
    noisy = asked(with_spread(path), {"gpu": 1}, "fcfs")
    assert not carries(noisy, 34.0)
    assert carries(noisy, 26.0)


def test_trials_too_short_for_their_slo_are_reported_instead_of_searched_for_ever(
    tmp_path: Path,
) -> None:
    request = asked(a_typed_file(tmp_path, sizes=ONE_SIZE), {"gpu": 1}, "fcfs", queries=3)
    with pytest.raises(ArrivalsError, match="any rate is answered in time; play at least"):
        capacity(request)


def _of_queries() -> list[object]:
    """Return every kind of policy that serves queries; policies that plan by demand warm up for
    10 s per trial."""
    kinds = [kind for kind in known_kinds() if not spec_of(kind).sessions]
    follows = {kind for kind in kinds if spec_of(kind).follows_demand}
    return [pytest.param(x, marks=pytest.mark.thorough) if x in follows else x for x in kinds]


@pytest.mark.thorough
@pytest.mark.parametrize("policy", _of_queries())
def test_every_policy_has_a_capacity(tmp_path: Path, policy: str) -> None:
    request = asked(a_typed_file(tmp_path, sizes=ONE_SIZE), {"gpu": 1}, policy, 300)
    found = capacity(replace(request, attainment=0.9))
    assert found.best is not None
    # A device serves 50/s. Proteus waits for whole batches and drops queries that become late.
    assert (5 if policy == "proteus" else 20) < found.best.qps < 60


@pytest.mark.parametrize("policy", ["compass", "circinus"])
def test_a_policy_of_sessions_has_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], policy: str
) -> None:
    assert run(["capacity", str(a_typed_file(tmp_path)), "--policy", policy]) == 2
    assert f"policy {policy!r} serves sessions, and a capacity is a rate of queries" in (
        capsys.readouterr().err
    )


def test_a_search_ends_where_queries_do_not_meet_and_are_late_all_the_same(tmp_path: Path) -> None:
    path = a_typed_file(tmp_path, RANK.replace("slo: 100ms", "slo: 10ms"), ONE_SIZE)
    found = capacity(asked(path, {"gpu": 1}, "fcfs", 200))  # 20 ms on the device
    assert found.best is None
    assert found.runs < 9  # of 25/s and falling, none below 1/s


def test_the_command_prints_a_list_with_one_object_per_policy_and_seed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_typed_file(tmp_path, sizes=ONE_SIZE)
    arguments = ["capacity", str(path), "--policy", "kairos", "--mix", "gpu=1", "--queries", "200"]
    assert run([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 1
    assert {
        "policy",
        "seed",
        "mix",
        "capacity_qps",
        "attainment",
        "p99_ms",
        "runs",
        "queries",
    } <= set(rows[0])
    assert (rows[0]["policy"], rows[0]["seed"], rows[0]["mix"]) == ("kairos", 0, {"gpu": 1})


def test_devices_that_carry_nothing_have_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_typed_file(tmp_path, RANK.replace("slo: 100ms", "slo: 10ms"), ONE_SIZE)
    arguments = ["--policy", "fcfs", "--mix", "gpu=1", "--queries", "200"]
    assert run(["capacity", str(path), *arguments]) == 0
    assert "fcfs keeps the SLO at no rate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (("--mix", "tpu=1"), 2, "its types are gpu, slow"),
        (("--mix", "gpu"), 2, "no TYPE=N"),
        (("--policy", "best"), 2, "no policy 'best'"),
        (("--attainment", "nan", "--mix", "gpu=1"), 2, "'nan' is no number"),
    ],
)
def test_mistakes_are_reported_in_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
    says: str,
) -> None:
    assert run(["capacity", str(a_typed_file(tmp_path)), *options]) == code
    assert says in capsys.readouterr().err


def test_sizes_that_ingress_refuses_have_no_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rate was 0, as every query of that size was refused."""
    path = a_typed_file(tmp_path, RANK.replace("most: 1000", "most: 500"))
    assert run(["capacity", str(path), "--mix", "gpu=1"]) == 2
    assert "queries of size 1000, above size.most, which is 500" in capsys.readouterr().err


def test_a_tight_slo_is_searched_though_the_first_variant_has_no_profile(tmp_path: Path) -> None:
    """The search began at 1/s, no higher than the lowest rate that is tried, and tried none."""
    path = a_typed_file(tmp_path, RANK.replace("slo: 100ms", "slo: 10ms"), ONE_SIZE)
    request = asked(path, {"gpu": 1}, "fcfs", 200)
    found = capacity(replace(request, start_qps=1.0))
    assert found.runs > 0

import json
from pathlib import Path

import pytest

from control.policies.kairos.query_sizes import SizesError
from control.problem.problem import PlanError
from headrace.cli.main import run
from headrace.config.cluster_cost import cost_per_hour
from headrace.config.pipeline_file import read_pipeline_file
from headrace.errors import PipelineError
from headrace.planning.device_mix import (
    MixRequest,
    planned_mix,
    pool_of,
    with_mix,
    with_workers,
)
from headrace.planning.mix_output import mix_as_json
from headrace.planning.rentable import rentable_of
from tests.typed_files import RANK, SECONDS, a_typed_file


def planned(path: Path, **asked: object) -> dict[str, object]:
    return mix_as_json(planned_mix(read_pipeline_file(path), MixRequest(**asked)))  # type: ignore[arg-type]


def printed(
    capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, dict[str, object]]:
    code = run([*map(str, arguments), "--json"])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, found


def test_the_object_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    found = planned(a_typed_file(tmp_path), pick="first")
    assert list(found) == [
        "policy", "budget", "base", "sizes", "coefficients", "largest", "spaces", "mixes",
        "picked", "reason", "seconds", "nearest",
    ]  # fmt: skip
    assert found["base"] == "gpu"
    assert found["sizes"] == {"source": "sizes.csv", "queries": None, "mean": 145.0, "p99": 1000}
    assert found["coefficients"] == {"gpu": 1.0, "slow": pytest.approx(0.2)}
    assert found["largest"] == {"gpu": 1000, "slow": 100}
    assert found["spaces"] == {"mixes": 12, "with_base": 6}
    first = found["mixes"][0]  # type: ignore[index]
    keys = ["counts", "cost", "bound_qps", "usd_per_1000_answers"]
    assert list(first) == ["rank", *keys, "simulated_qps"]
    assert found["picked"] == {key: first[key] for key in keys} | {"rule": "first"}
    per_answer = first["cost"] / 3600 / first["bound_qps"]
    assert first["usd_per_1000_answers"] == pytest.approx(1000 * per_answer)
    assert found["nearest"] == {
        "slo_ms": pytest.approx(80 / 0.98), "size": 1000, "budget": 0.5,
    }  # fmt: skip


def test_a_budget_and_sizes_of_the_command_line_win(tmp_path: Path) -> None:
    path = a_typed_file(tmp_path)
    (tmp_path / "small.csv").write_text("size,probability\n10,1\n")
    found = planned(path, budget=0.5, sizes=tmp_path / "small.csv", pick="first")
    # Small queries only: 100/s on the gpu for 0.5, 50/s on each cpu for 0.2.
    assert found["picked"]["counts"] == {"gpu": 0, "slow": 2}  # type: ignore[index]
    assert found["mixes"][0]["bound_qps"] == pytest.approx(100.0)  # type: ignore[index]


def test_the_command_prints_one_object_and_exits_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_typed_file(tmp_path)
    options = ("--budget", "1.2", "--bound", "eq15", "--pick", "paper", "--top", "2")
    code, found = printed(capsys, "plan", path, *options)
    assert code == 0
    assert found["picked"]["rule"] == "paper"  # type: ignore[index]
    assert len(found["mixes"]) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "near", "reason"),
    [
        (("--slo", "50ms"), {"slo_ms": pytest.approx(80 / 0.98), "size": 100, "budget": None},
         "no type meets the SLO of 50 ms at size 1000"),
        (("--budget", "0.1"), {"slo_ms": pytest.approx(80 / 0.98), "size": 1000, "budget": 0.5},
         "the budget of 0.1 $/h is below the cheapest device, slow at 0.2 $/h"),
        (("--budget", "0.3"), {"slo_ms": pytest.approx(80 / 0.98), "size": 1000, "budget": 0.5},
         "no mix within 0.3 $/h serves every size within the SLO"),
        (("--demand", "60", "--cheapest", "--slo", "50ms"),
         {"slo_ms": pytest.approx(80 / 0.98), "size": 100, "budget": None},
         "no type meets the SLO of 50 ms at size 1000"),
    ],
)  # fmt: skip
def test_demand_beyond_every_mix_exits_3_with_the_nearest_alternative(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    near: dict[str, object],
    reason: str,
) -> None:
    code, found = printed(capsys, "plan", a_typed_file(tmp_path), *options)
    assert code == 3
    assert (found["picked"], found["nearest"]) == (None, near)
    assert str(found["reason"]).startswith(reason)


def test_a_demand_beyond_the_limits_of_types_exits_3_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = RANK.replace("price: 0.5", "price: 0.5, most: 2").replace(
        "price: 0.2", "price: 0.2, most: 2"
    )
    path = a_typed_file(tmp_path, limited)
    code, found = printed(capsys, "plan", path, "--demand", "6000", "--cheapest")
    assert (code, found["picked"]) == (3, None)
    assert found["reason"] == (
        "no mix within the types' limits carries 6000 queries/s with a headroom of 1; raise the "
        "most of a type, or lower the demand"
    )
    assert run(["plan", str(path), "--demand", "6000", "--cheapest"]) == 3
    assert capsys.readouterr().out.startswith(str(found["reason"]))


@pytest.mark.parametrize("more", [(), ("--cheapest",)])
def test_a_demand_beside_a_budget_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    path = str(a_typed_file(tmp_path))
    assert run(["plan", path, "--demand", "60", "--budget", "1.2", *more]) == 2
    assert "--demand and --budget exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--budget", "1.2", "--devices", "3"), "--devices has no effect on mixes"),
        (("--budget", "1.2", "--world", "none"), "--world has no effect on mixes"),
        (("--demand", "60", "--cheapest", "--table"), "--table has no effect on mixes"),
        (("--demand", "60", "--pick", "first"), "--pick has no effect on plans"),
        (("--demand", "60", "--cheapest", "--pick", "paper"),
         "--pick has no effect on the cheapest"),
        (("--demand", "60", "--cheapest", "--bound", "eq15"),
         "--bound has no effect on the cheapest"),
        (("--demand", "60", "--sizes", "sizes.csv"), "--sizes has no effect on plans"),
    ],
)  # fmt: skip
def test_an_option_of_the_other_kind_of_plan_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], named: str
) -> None:
    assert run(["plan", str(a_typed_file(tmp_path)), *options]) == 2
    assert named in capsys.readouterr().err


def test_the_cheapest_mix_says_what_ten_percent_more_would_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = printed(capsys, "plan", a_typed_file(tmp_path), "--demand", "60", "--cheapest")
    assert code == 0
    assert found["picked"]["bound_qps"] >= 60  # type: ignore[index]
    assert [each["demand"] for each in found["near"]] == pytest.approx([54, 66])  # type: ignore[attr-defined]
    costs = [each["cost"] for each in found["near"]]  # type: ignore[attr-defined]
    assert costs[0] <= found["picked"]["cost"] <= costs[1]  # type: ignore[index]
    per_answer = found["picked"]["cost"] / 3600 / 60  # type: ignore[index]
    assert found["picked"]["usd_per_1000_answers"] == pytest.approx(1000 * per_answer)  # type: ignore[index]


@pytest.mark.parametrize(
    ("policy", "devices", "usd_per_h"),
    [("loki", "gpu: 2", 0.5), ("static", "gpu: 2", 1.0), ("ramsis", "gpu: 2", 1.0)],
)
def test_a_plan_for_a_demand_says_what_its_devices_cost(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    policy: str,
    devices: str,
    usd_per_h: float,
) -> None:
    text = RANK.replace("  budget:", f"  start: {{{devices}}}\n  budget:")
    path = a_typed_file(tmp_path, text, "size,probability\n100,1\n")
    code, found = printed(capsys, "plan", path, "--demand", "30", "--policy", policy)
    assert code == 0
    assert found["usd_per_h"] == pytest.approx(usd_per_h)
    assert found["usd_per_1000_answers"] == pytest.approx(usd_per_h / 3600 / 30 * 1000)
    assert run(["plan", str(path), "--demand", "30", "--policy", policy]) == 0
    assert f"  costs {usd_per_h:.4f} $/h, 0.0" in capsys.readouterr().out


def test_a_demand_is_planned_for_the_mix_ranked_first_where_the_file_has_only_types(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = a_typed_file(tmp_path, sizes="size,probability\n100,1\n")
    assert run(["plan", str(path), "--demand", "30", "--policy", "loki"]) == 0
    assert "1 of 3 devices" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        ("sizes: sizes.csv\n", "", PlanError, "nothing says how large queries are"),
        ("most: 1000", "most: 500", PlanError, "size 1000, above size.most"),
        ("most: 1000", "most: 2000", PlanError, "measured for batches of 1 to 1000, not 2000"),
        ("sizes: sizes.csv", "sizes: no.csv", SizesError, "No such file"),
        ("    slow: {", "    tpu: {", PlanError, "no profile of rank/m on tpu"),
    ],
)
def test_files_that_cannot_be_planned_are_refused_in_one_sentence(
    tmp_path: Path, old: str, new: str, error: type[Exception], says: str
) -> None:
    path = a_typed_file(tmp_path, RANK.replace(old, new))
    with pytest.raises(error, match=says):
        planned(path)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("  budget: 1.2\n", "", "add a line budget: 2.5"),
        ("  budget: 1.2", "  budget: .inf", "cluster.budget is inf; it must be finite"),
        ("price: 0.2", "price: 0.0", "type 'slow' costs nothing and has no limit"),
        ("price: 0.2", "price: -1.0", "price is -1.0; it must be 0"),
        ("price: 0.2", "price: .inf", "price is inf; it must be 1"),
        ("  budget: 1.2", "  budget: 1.2\n  base: tpu", "base is 'tpu', which is no type"),
        ("  budget: 1.2", "  start: {tpu: 1}", "start.tpu is no type"),
        ("    slow: {", "    emulated: {", "'emulated' is no name of a device type"),
        ("size: {most: 1000}\n", "", "sizes needs to know what a size is"),
        ("most: 1000", "most: 0", "size.most is 0; it must be 1 or more"),
        ("most: 1000", "most: 1000, over: split", "write both over: split and split"),
        ("most: 1000", 'most: 1000, split: "a.b:c"', "write both over: split and split"),
        ('"builtins:bytes"}', '"builtins:bytes"}, batch: 4', "each is a batch of its own"),
        ("profiles: [profile.json]\n", "", "differ by their profiles"),
    ],
)
def test_mistakes_in_types_and_sizes_are_reported_with_their_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = a_typed_file(tmp_path, RANK.replace(old, new))
    with pytest.raises(PipelineError, match=says):
        read_pipeline_file(path)


def test_a_file_that_says_only_what_can_be_rented_runs_the_mix_ranked_first(tmp_path: Path) -> None:
    file = read_pipeline_file(a_typed_file(tmp_path))
    assert file.cluster.devices == ()
    first = planned_mix(file, MixRequest(pick="first"))
    assert first.picked is not None
    run_of = with_workers(file).cluster
    assert dict(run_of.devices) == {"gpu": first.picked.counts[0], "slow": first.picked.counts[1]}
    assert cost_per_hour(run_of) == pytest.approx(first.picked.cost)


def test_the_mix_of_the_file_is_kept(tmp_path: Path) -> None:
    text = RANK.replace("  budget: 1.2", "  start: {gpu: 2, slow: 0}")
    file = read_pipeline_file(a_typed_file(tmp_path, text))
    assert with_workers(file) is file
    assert file.cluster.devices == (("gpu", 2),)
    with pytest.raises(PipelineError, match="its types are gpu, slow"):
        with_mix(file, {"tpu": 1})
    with pytest.raises(PipelineError, match="runs nothing"):
        with_mix(file, {"gpu": 0})
    assert dict(with_mix(file, {"gpu": 60, "slow": 4}).cluster.devices) == {"gpu": 60, "slow": 4}
    with pytest.raises(PipelineError, match="65 devices, but the tasks have 64 slots"):
        with_mix(file, {"gpu": 60, "slow": 5})


def test_a_pool_has_the_means_and_the_95th_percentiles_of_the_profile(tmp_path: Path) -> None:
    text = RANK.replace("  budget: 1.2", "  budget: 1.2\n  scale: supervisor\n  start: {slow: 1}")
    path = a_typed_file(tmp_path, text)
    profile = json.loads((tmp_path / "profile.json").read_text())
    for row in profile["entries"][1]["latency"]:
        row["p95_s"] = row["p99_s"] = 1.5 * row["mean_s"]
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    file = read_pipeline_file(path)
    pool, _ = pool_of(file, MixRequest())
    gpu, slow = pool.latency_s
    assert pool.worst_s == (gpu, tuple(pytest.approx(1.5 * each) for each in slow))
    rentable = rentable_of(file)
    assert rentable is not None
    assert rentable.pool(pool.sizes) == pool


def test_types_alike_in_all_but_their_name_are_types(tmp_path: Path) -> None:
    text = RANK.replace("    slow: {", "    gpu2: {").replace("price: 0.2", "price: 0.5")
    path = a_typed_file(tmp_path, text, seconds={"gpu": SECONDS["gpu"], "gpu2": SECONDS["gpu"]})
    assert planned(path, pick="first")["spaces"] == {"mixes": 5, "with_base": 3}


def test_a_type_that_misses_the_slo_at_every_size_is_in_no_mix_that_is_picked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late = {"late": {10: 0.2, 100: 0.3, 1000: 0.4}}
    text = RANK.replace("  budget:", "    late: {device: emulated, price: 0.01}\n  budget:")
    path = a_typed_file(tmp_path, text, seconds={**SECONDS, **late})
    code, found = printed(capsys, "plan", path, "--budget", "1.2", "--pick", "first")
    assert code == 0
    assert found["largest"] == {"gpu": 1000, "slow": 100, "late": 0}
    usual = planned(a_typed_file(tmp_path), pick="first")
    picked, alone = found["picked"], usual["picked"]
    assert picked["counts"] == {**alone["counts"], "late": 0}  # type: ignore[index]
    assert picked["bound_qps"] == alone["bound_qps"]  # type: ignore[index]


def _a_file_of_a_thousand_types(folder: Path) -> Path:
    names = [f"kind-{n}" for n in range(1000)]
    types = "".join(f"    {name}: {{device: emulated, price: 1}}\n" for name in names)
    before, _, after = RANK.partition("    gpu:")
    text = before + types + "  budget:" + after.partition("  budget:")[2]
    seconds = {
        name: {size: s * (1 + n / 1000) for size, s in SECONDS["gpu"].items()}
        for n, name in enumerate(names)
    }
    return a_typed_file(folder, text, seconds=seconds)


@pytest.mark.thorough
def test_a_thousand_types_are_ranked_where_the_budget_affords_few_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _a_file_of_a_thousand_types(tmp_path)
    code, found = printed(capsys, "plan", path, "--budget", "1", "--pick", "first")
    assert code == 0
    assert found["spaces"]["mixes"] == 1000  # type: ignore[index]
    counts = found["picked"]["counts"]  # type: ignore[index]
    assert {name: n for name, n in counts.items() if n} == {"kind-0": 1}
    assert run(["plan", str(path), "--budget", "2", "--pick", "first"]) == 2
    told = capsys.readouterr().err
    assert "affords more than 64,000 mixes of 1000 types; lower the budget" in told


def test_a_line_that_the_solver_prints_is_hidden(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """HiGHS prints one as it repairs a solution with a million devices."""
    types = {  # $ per hour, ms of a query, ms of each item
        "gpu": (0.526, 3.7, 0.2575), "core": (0.432, 2.6, 0.3866), "lean": (0.149, 3.9, 0.4009),
        "burst": (0.1664, 2.8, 0.8827),
    }  # fmt: skip
    sizes = range(10, 1001, 10)
    seconds = {
        name: {size: (ms + item_ms * size) / 1e3 for size in sizes}
        for name, (_, ms, item_ms) in types.items()
    }
    before, _, after = RANK.replace("100ms", "350ms").partition("    gpu:")
    priced = [f"    {name}: {{device: emulated, price: {of[0]}}}" for name, of in types.items()]
    text = before + "\n".join([*priced, "  budget:"]) + after.partition("  budget:")[2]
    rows = "".join(f"{size},0.01\n" for size in sizes)
    path = a_typed_file(tmp_path, text, "size,probability\n" + rows, seconds)
    assert run(["plan", str(path), "--demand", "1e6", "--cheapest", "--json"]) == 0
    written = capfd.readouterr()
    assert written.err == ""
    assert json.loads(written.out)["demand"] == 1e6

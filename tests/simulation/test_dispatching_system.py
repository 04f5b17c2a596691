"""Queries wait in ingress for devices of different types, in virtual time: none is lost or
duplicated."""

from dataclasses import replace
from pathlib import Path

import pytest

from control.policies.kairos.query_sizes import SizeDistribution
from headrace.arrivals.arrival_processes import Renewal
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.planning.device_mix import with_mix
from headrace.simulation.comparison import Comparison, as_json, play
from headrace.simulation.comparison_text import comparison_text
from headrace.simulation.faults import BROKER_PAUSE, CONTROL_DOWN, DEATH, SLOW, Fault
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Ended, simulated
from tests.typed_files import RANK, a_typed_file

SMALL = SizeDistribution((10, 100), (0.7, 0.3))
HOPS = RANK.replace("comm: 0ms\n", "").replace("slo: 100ms", "slo: 200ms")


def played(
    folder: Path,
    policy: str,
    *faults: Fault,
    mix: dict[str, int] | None = None,
    rate: float = 60.0,
    text: str = HOPS,
) -> Ended:
    file = with_policies(read_pipeline_file(a_typed_file(folder, text)), (policy,))
    file = with_mix(file, mix or {"gpu": 1, "slow": 2})
    run = Run(
        file=file, policy=policy, seed=1, arrivals=Renewal(rate, 15.0), faults=faults, sizes=SMALL
    )
    return simulated(run, lambda sent: None)


def answered_share(ended: Ended) -> float:
    return ended.metrics.counts["answered"] / ended.queries


@pytest.mark.thorough
@pytest.mark.parametrize(
    "policy", ["kairos", "kairos-paper", "fcfs", "threshold:threshold=50", "earliest"]
)
def test_every_rule_answers_nearly_all_at_half_load(tmp_path: Path, policy: str) -> None:
    ended = played(tmp_path, policy)
    assert ended.metrics.counts["lost"] == 0
    assert answered_share(ended) > 0.99


@pytest.mark.parametrize(
    ("fault", "least"),
    [
        (Fault(at_s=5.0, kind=DEATH, device="gpu-0", for_s=3.0), 0.6),
        (Fault(at_s=5.0, kind=DEATH, device="slow-0", for_s=3.0), 0.9),
        (Fault(at_s=5.0, kind=CONTROL_DOWN, for_s=3.0), 0.99),
        (Fault(at_s=5.0, kind=BROKER_PAUSE, for_s=1.0), 0.85),
    ],
    ids=["base-dies", "auxiliary-dies", "control-dies", "broker-pauses"],
)
def test_whatever_dies_every_query_ends_once(tmp_path: Path, fault: Fault, least: float) -> None:
    ended = played(tmp_path, "kairos", fault, mix={"gpu": 2, "slow": 2})
    counts = ended.metrics.counts
    assert counts["lost"] == 0
    assert sum(counts.values()) == ended.queries
    assert answered_share(ended) > least


def test_a_run_on_rented_devices_tells_what_it_costs(tmp_path: Path) -> None:
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, HOPS)), {"gpu": 1, "slow": 2})
    arrivals = Renewal(50.0, 4.0)
    run = Run(file=file, policy="kairos", seed=1, arrivals=arrivals, sizes=SMALL)
    ended = simulated(run, lambda sent: None)
    row = ended.as_json(run)
    seconds = ended.last_s - ended.first_s
    assert row["usd_per_h"] == pytest.approx(0.9)
    assert row["usd_per_1000_answers"] == pytest.approx(
        0.9 / 3600 * seconds / row["answered"] * 1000, rel=1e-4
    )


def test_a_comparison_has_the_costs(tmp_path: Path) -> None:
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, HOPS)), {"gpu": 1, "slow": 2})
    asked = Run(file=file, policy="kairos", seed=1, arrivals=Renewal(20.0, 1.0), sizes=SMALL)
    run = play(asked, lambda sent: None)
    made = Comparison(file, (1,), {"kairos": (run,)})
    (row,) = as_json(made)["policies"]
    assert row["usd_per_h"]["mean"] == pytest.approx(0.9)
    assert row["usd_per_1000_answers"]["mean"] == pytest.approx(
        run.row["usd_per_1000_answers"], abs=1e-6
    )
    assert any(line.startswith("$/1000") for line in comparison_text(made).splitlines())
    bare = {key: value for key, value in run.row.items() if not key.startswith("usd")}
    without = Comparison(file, (1,), {"kairos": (replace(run, row=bare),)})
    assert "$" not in comparison_text(without)
    wide = Comparison(file, (1, 2), dict.fromkeys(("kairos", "fcfs", "earliest"), (run, run)))
    *tables, _ = comparison_text(wide).splitlines()
    assert max(map(len, tables)) <= 80


@pytest.mark.parametrize("rule", ["kairos", "fcfs"])
def test_late_queries_are_dropped_or_served_as_the_policy_says(tmp_path: Path, rule: str) -> None:
    """30 queries of 10 ms each come at once; a device serves some 20 of them in time."""
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, HOPS)), {"gpu": 1})
    trace = tmp_path / "trace.csv"
    trace.write_text("ms,size\n" + "5000,10\n" * 30)
    for policy, ends in ((rule, "dropped"), (f"{rule}:late=serve", "late")):
        run = Run(
            file=with_policies(file, (policy,)), policy=policy, seed=1,
            arrivals=read_workload(trace),
        )  # fmt: skip
        counts = simulated(run, lambda sent: None).metrics.counts
        assert counts[ends] >= 10
        assert counts["answered"] + counts[ends] == 30


def test_a_device_that_slows_down_gets_less(tmp_path: Path) -> None:
    slow = Fault(at_s=3.0, kind=SLOW, device="slow-0", factor=4.0)
    known, unknown = (played(tmp_path, policy, slow) for policy in ("kairos", "fcfs"))
    assert answered_share(known) > answered_share(unknown)


def test_several_ingress_processes_divide_the_devices(tmp_path: Path) -> None:
    text = HOPS.replace("cluster:\n", "cluster:\n  ingress: 2\n")
    ended = played(tmp_path, "kairos", mix={"gpu": 2, "slow": 4}, text=text)
    assert ended.metrics.counts["lost"] == 0
    assert answered_share(ended) > 0.97


def test_recorded_sizes_are_played_and_those_above_the_limit_refused(tmp_path: Path) -> None:
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, HOPS)), {"gpu": 1})
    trace = tmp_path / "trace.csv"
    trace.write_text("ms,size\n" + "".join(f"{at * 50},{(10, 2000)[at % 2]}\n" for at in range(60)))
    run = Run(file=file, policy="kairos", seed=1, arrivals=read_workload(trace))
    counts = simulated(run, lambda sent: None).metrics.counts
    assert (counts["answered"], counts["refused"], counts["lost"]) == (30, 30, 0)


@pytest.mark.parametrize("policy", ["kairos", "loki"])
def test_queries_above_the_limit_are_answered_in_parts(tmp_path: Path, policy: str) -> None:
    text = HOPS.replace("{most: 1000}", '{most: 1000, over: split, split: "builtins:list"}')
    file = with_mix(read_pipeline_file(a_typed_file(tmp_path, text)), {"gpu": 2})
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{10_000 + at * 250},{(10, 1500)[at % 2]}\n" for at in range(60))
    trace.write_text("ms,size\n" + rows)
    run = Run(file=file, policy=policy, seed=1, arrivals=read_workload(trace))
    counts = simulated(run, lambda sent: None).metrics.counts
    assert (counts["answered"], counts["refused"], counts["lost"]) == (60, 0, 0)

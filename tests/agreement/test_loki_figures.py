"""`headrace plan` finds every optimum measured with the paper's code, on the paper's data."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.loki import write
from headrace.arrivals.arrivals_file import read_workload
from headrace.cli.main import run
from headrace.config.pipeline_file import read_pipeline_file

DATA = Path(__file__).parents[3] / "shared" / "data" / "loki"

pytestmark = pytest.mark.skipif(
    not (DATA / "latency_simulator.csv").is_file(), reason=f"Loki's data is not in {DATA}"
)

# Exact optima of the untied model, 250 ms: devices in hardware mode, else accuracy in percent.
DEMANDS = (50, 100, 150, 200, 300, 400, 500, 600, 800, 1000, 1250, 1500, 2000)
OPTIMA = {
    ("traffic", 18): (5, 10, 15, 99.211, 96.583, 93.887, 84.772, 77.646, 68.910, 63.826, 59.493,
                      56.712, 52.170),
    ("traffic", 20): (5, 10, 15, 20, 97.505, 94.803, 89.357, 82.406, 72.243, 66.173, 61.118,
                      58.100, 54.159),
    ("social", 18): (3, 5, 7, 9, 12, 16, 95.195, 94.716, 93.414, 92.535, 86.086, 78.743, 65.890),
    ("social", 20): (3, 5, 7, 9, 12, 16, 19, 95.143, 93.936, 92.913, 90.182, 83.303, 70.629),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loki")
    write(DATA, out)
    return out


def planned(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict]:
    assert run(["plan", *words, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "devices"), OPTIMA, ids=str)
@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_every_measured_optimum_is_found(
    files: Path, capsys: pytest.CaptureFixture[str], name: str, devices: int, solver: str
) -> None:
    rows = planned(
        capsys, str(files / f"{name}-as-coded.yaml"), "--policy", "loki-paper", "--devices",
        str(devices), "--demand", ",".join(map(str, DEMANDS)), "--solver", solver,
    )  # fmt: skip
    assert [row["demand"] for row in rows] == list(DEMANDS)
    for row, optimum in zip(rows, OPTIMA[name, devices], strict=True):
        if isinstance(optimum, int):
            assert (row["mode"], row["devices_used"]) == ("hardware", optimum)
        else:
            assert row["mode"] == "accuracy"
            assert row["accuracy"] == pytest.approx(optimum / 100, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "devices", "largest"),
    [("traffic", 18, 2000), ("traffic", 20, 2300), ("social", 18, 2050), ("social", 20, 2300)],
)
def test_the_largest_feasible_demand_is_the_measured_one(
    files: Path, capsys: pytest.CaptureFixture[str], name: str, devices: int, largest: int
) -> None:
    rows = planned(
        capsys, str(files / f"{name}-as-coded.yaml"), "--devices", str(devices),
        "--demand", f"{largest},{largest + 50}", code=3,
    )  # fmt: skip
    assert [row["feasible"] for row in rows] == [True, False]
    assert largest <= rows[1]["nearest"]["demand"] < largest + 50


def test_the_full_trees_have_the_measured_modes(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = planned(
        capsys, str(files / "traffic.yaml"), "--comm", "0ms", "--demand", "175,200,2000"
    )
    assert [row["mode"] for row in traffic] == ["hardware", "accuracy", "accuracy"]
    social = planned(
        capsys, str(files / "social.yaml"), "--comm", "0ms", "--demand", "1025,1050", code=3
    )
    assert [row["mode"] for row in social] == ["accuracy", "best-effort"]


def test_the_files_are_right_and_the_arrivals_can_be_read(
    files: Path, capsys: pytest.CaptureFixture[str], rng: np.random.Generator
) -> None:
    for name in ("traffic", "social", "traffic-as-coded", "social-as-coded"):
        assert run(["validate", str(files / f"{name}.yaml")]) == 0
    assert len(read_workload(files / "traffic-288s-arrivals.txt.gz").drawn(rng)) == 76_522
    assert read_workload(files / "social-291s.csv").drawn(rng)[-1] < 291
    coded = read_pipeline_file(files / "social-as-coded.yaml").pipeline
    assert (coded.branches, coded.comm_s, coded.task("image_captioning").share) == (
        "untied", 0.0, (0.3, 0.7),
    )  # fmt: skip

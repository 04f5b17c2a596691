"""benchmarks/papers/kairos.py: the artifact's models and devices in Headrace's formats."""

import csv
import json
from pathlib import Path

import pytest

from benchmarks.papers.kairos import MODELS, write
from benchmarks.papers.sources import DataError
from headrace.config.pipeline_file import read_pipeline_file
from headrace.config.profile_files import planning_profile
from headrace.planning.device_mix import MixRequest, planned_mix

TYPES = (("gpu", 0.5), ("slow", 0.125))


def a_data_folder(folder: Path, largest: int = 20) -> Path:
    """Write data of two types; the largest size takes 20 and 40 ms."""
    half, ms = largest // 2, 20 / largest
    setup = {
        "budget_usd_per_h": 1.5, "base": "gpu", "max_batch": largest,
        "instances": [{"type": name, "price_usd_per_h": price} for name, price in TYPES],
        "models": [{"model": model, "qos_p99_ms": 25} for model in MODELS],
    }  # fmt: skip
    (folder / "setup.json").write_text(json.dumps(setup))
    sizes = [(half, 0.5), (largest, 0.5000001)]
    _table(folder / "query_size_pmf.csv", ("batch", "probability"), sizes)
    each = [(m, name, size) for m in MODELS for name, _ in TYPES for size in (largest, half)]
    _table(
        folder / "latency.csv",
        ("model", "instance", "batch", "n_samples", "total_mean_ms", "total_std_ms"),
        [
            (m, name, size, 99, size * ms * slow, size * ms * slow * slow / 100)
            for m, name, size in each
            for slow in [1 if name == "gpu" else 2]
        ],
    )
    _table(
        folder / "latency_samples.csv",
        ("model", "instance", "batch", "s00", "s01", "s02", "s03"),
        [(m, name, size, 900.0, size, size + 2, size + 1) for m, name, size in each],
    )
    return folder


def _table(path: Path, names: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows([names, *rows])


def test_every_model_is_a_pipeline_with_sizes_and_profiles(tmp_path: Path) -> None:
    out = tmp_path / "out"
    written = write(a_data_folder(tmp_path), out)
    assert sorted(path.name for path in written) == sorted(path.name for path in out.iterdir())
    assert {f"{model}.yaml" for model in MODELS} <= {path.name for path in written}
    for model in MODELS:
        file = read_pipeline_file(out / f"{model}.yaml")
        assert (file.cluster.budget, file.cluster.base) == (1.5, "gpu")
        assert (file.pipeline.slo_s, file.pipeline.comm_s) == (0.025, 0.0)
        profile = planning_profile(file)
        for quantile in ("mean", "p50", "p99"):
            assert profile.latency_s("rank", model, "slow", 10, quantile) == 0.02
        ranking = planned_mix(file, MixRequest(pick="first")).ranking
        assert ranking.mixes == 27
        # 15 ms for the mean query: three gpus carry 200/s, and so do two on the larger half.
        assert ranking.best[0].bound_qps == pytest.approx(200)


def test_the_noisy_profile_has_the_repeats_without_the_largest(tmp_path: Path) -> None:
    write(a_data_folder(tmp_path), tmp_path / "out")
    entry = json.loads((tmp_path / "out/rm2.noisy.profile.json").read_text())["entries"][0]
    first = entry["latency"][0]
    assert (first["batch"], first["repeats"]) == (10, 3)
    assert first["mean_s"] == pytest.approx(0.011)
    assert (first["p50_s"], first["p99_s"]) == pytest.approx((0.011, 0.01198))


def test_missing_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"setup\.json cannot be read"):
        write(tmp_path, tmp_path / "out")

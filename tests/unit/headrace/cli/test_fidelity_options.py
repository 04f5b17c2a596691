"""``headrace fidelity``: what cannot be certified is refused before anything runs; the text."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.small_cluster import a_cluster, some_arrivals
from headrace.cli.main import run
from headrace.errors import BAD_INPUT, UNSUCCESSFUL, CertificateError
from headrace.fidelity.certificate import certified
from headrace.fidelity.certificate_text import text
from headrace.fidelity.fidelity_run import place, store, stored
from tests.unit.headrace.fidelity.test_certificate import CONDITIONS, LIVE


def said(
    capsys: pytest.CaptureFixture[str], folder: Path, *options: str, **changes: object
) -> tuple[int, str]:
    path, arrivals = a_cluster(folder, **changes), some_arrivals(folder, 20.0, 4.0)
    code = run(["fidelity", str(path), "--arrivals", str(arrivals), *options])
    return code, capsys.readouterr().err


def test_an_unknown_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, error = said(capsys, tmp_path, "--policy", "best")
    assert (code, "there is no policy 'best'" in error) == (BAD_INPUT, True)


def test_a_warm_up_that_leaves_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = said(capsys, tmp_path, "--warm-up", "9s")
    assert (code, "shorten --warm-up" in error) == (BAD_INPUT, True)


def test_real_devices_cannot_be_dilated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = {"devices": {"cuda:0": 4}}
    code, error = said(capsys, tmp_path, "--dilate", "4", "--warm-up", "1s", cluster=cluster)
    assert (code, "leave --dilate out" in error) == (UNSUCCESSFUL, True)


def test_a_certificate_lies_beside_its_pipeline_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    certificate = certified(CONDITIONS, LIVE, LIVE)
    assert stored(file) is None
    store(certificate, place(file))
    assert (place(file).name, stored(file)) == ("pipeline.fidelity.json", certificate)
    place(file).write_text("{")
    with pytest.raises(CertificateError, match="cannot be read"):
        stored(file)


def test_a_certificate_for_a_person() -> None:
    simulated = replace(LIVE, p50_ms=112.0, violation=0.06)
    busy = replace(CONDITIONS, host_cpu_share=0.9, own_cpu_share=0.4)
    shown = [line.split() for line in text(certified(busy, LIVE, simulated)).splitlines()]
    assert shown[1] == ["p50", "ms", "100.0", "112.0", "+12.0%", "10.0%", "5.0%", "MISSED"]
    assert shown[5][:9] == [
        "violation",
        "5.00%",
        "6.00%",
        "+1.00",
        "pt",
        "2.00",
        "pt",
        "0.50",
        "pt",
    ]
    told = text(certified(busy, LIVE, simulated))
    assert "host 90% busy (40% by the run itself)" in told
    assert "loki, 20 emulated; simulated 1 times, seed 0" in told
    assert "bounds hold below 70%" in told

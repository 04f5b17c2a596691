"""Every certificate is kept with its prediction; the history shows all of them."""

from dataclasses import replace
from pathlib import Path

from headrace.fidelity.certificate_store import (
    Kept,
    folder,
    keep_prediction,
    known_drift,
    newest,
    sha256,
    store_certificate,
    stored_certificates,
)
from headrace.fidelity.certificate_text import certificate_text, history_text
from headrace.fidelity.drift import MEDIAN, DelayDrift
from tests.unit.headrace.fidelity.test_certificate import CONDITIONS, a_certificate


def test_misses_and_broken_off_runs_stay_in_the_history(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    assert (stored_certificates(file), newest(file)) == ((), None)
    good, bad = a_certificate(), a_certificate(p50_ms=150.0)
    for at, certificate in (("1", bad), ("2", None), ("3", good)):
        digest = sha256(keep_prediction(file, at, {"at": at}))
        if certificate is not None:
            store_certificate(file, at, replace(certificate, sha256=digest))
    found = stored_certificates(file)
    assert [each.certificate and each.certificate.verdict for each in found] == [
        "missed", None, "aim",
    ]  # fmt: skip
    assert newest(file) == found[-1].certificate
    shown = history_text(found).splitlines()
    assert "MISSED" in shown[1]
    assert "not judged" in shown[2]
    assert "within the aim" in shown[3]


def test_a_prediction_that_was_changed_afterwards_is_exposed(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    path = keep_prediction(file, "1", {"p50_ms": 100})
    store_certificate(file, "1", replace(a_certificate(), sha256=sha256(path)))
    assert [each.genuine for each in stored_certificates(file)] == [True]
    path.write_text(path.read_text().replace("100", "120"))
    assert [each.genuine for each in stored_certificates(file)] == [False]
    assert "modified afterwards" in history_text(stored_certificates(file))


def test_what_is_kept_lies_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    path = store_certificate(file, "1", a_certificate()) if keep_prediction(file, "1", {}) else file
    assert (folder(file).name, path.name) == ("pipeline.certificates", "1.certificate.json")
    assert isinstance(stored_certificates(file)[0], Kept)


def test_a_certificate_for_a_person() -> None:
    busy = replace(CONDITIONS, host_cpu_share=0.9)
    told = certificate_text(replace(a_certificate(p50_ms=112.0), conditions=busy))
    rows = [line.split() for line in told.splitlines()]
    assert rows[1] == [
        "p50", "ms", "112.0", "112.0", "to", "112.0", "100.0", "0.0", "+12.0%", "10.0%", "0.76",
        "100.0", "MISSED",
    ]  # fmt: skip
    assert "MISSED: 3 live runs" in told
    assert "loki, 20 emulated" in told
    assert "bounds hold below 70%" in told
    assert "built-in figures" in told
    assert "no prediction" in told  # of the conditional column


def test_the_newest_certificate_of_a_calibration_tells_of_its_drift(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"

    def keep(at: str, sha256: str, factor: float) -> None:
        drift = (DelayDrift(what="hops", of=MEDIAN, factors=(factor,) * 3),)
        world = {"path": "pipeline.world.json", "sha256": sha256, "date": "2026-11-22"}
        keep_prediction(file, at, {})
        store_certificate(file, at, replace(a_certificate(), world=world, drift=drift))

    assert known_drift(file, "a") == ""
    keep("1", "a", 1.5)
    assert "hops took 1.50 times the calibrated time" in known_drift(file, "a")
    assert (known_drift(file, "b"), known_drift(file, "")) == ("", "")
    keep("2", "b", 2.0)
    assert "1.50 times" in known_drift(file, "a")
    keep("3", "a", 1.0)
    assert known_drift(file, "a") == ""
    folder(file).joinpath("3.certificate.json").write_text("{}")
    assert known_drift(file, "a") == ""  # unreadable: a simulation needs none

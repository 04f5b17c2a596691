"""headrace/report/live_report.py and its views: a report from answers and plans of a pipeline."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.small_cluster import a_cluster
from headrace.client.formats import read_answer
from headrace.config.cluster import DeviceType
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.errors import CertificateError
from headrace.fidelity.certificate_store import folder, keep_prediction, store_certificate
from headrace.report.live_report import answers_between, reported
from headrace.report.report_text import report_page, report_text
from headrace.results.phase_outcomes import InForce
from schemas.codec.single_object import encode
from schemas.records import REFUSED, Answer, End, Plan, Settings
from tests.builders import a_hop, a_lease, a_plan, an_answer
from tests.unit.headrace.fidelity.test_certificate import a_certificate

START_S = 1_700_000_000.0


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return read_pipeline_file(a_cluster(tmp_path))


def at(offset: int, after_s: float, **changes: Any) -> Answer:
    made = START_S + after_s
    path = (
        a_hop(task="detect", variant="large", finished_s=made + 0.05),
        a_hop(task="read", variant="small", finished_s=made + 0.1),
    )
    usual: dict[str, Any] = {
        "created_s": made, "deadline_s": made + 0.25, "answered_s": made + 0.1,
        "ends": (End("answered", "read"),), "paths": (path,),
    }  # fmt: skip
    return an_answer(offset, **usual | changes)


def under(policy: str, epoch: int, after_s: float, workers: int) -> Plan:
    return a_plan(
        [a_lease(f"w-{n}") for n in range(workers)], epoch, issued_s=START_S + after_s,
        settings=Settings(policy=policy, slo_s=0.25),
    )  # fmt: skip


ANSWERS = [
    *(at(n, float(n)) for n in range(8)),
    at(8, 8.0, outcome=REFUSED, reason="over capacity", ends=(), paths=()),
    at(9, 9.0, late=True, answered_s=START_S + 9.5),
]
PLANS = [
    under("static", 1, -50.0, 9), under("static", 2, -10.0, 2), under("static", 3, 2.0, 2),
    under("loki", 4, 5.0, 4),
]  # fmt: skip


def test_a_report_has_the_figures_of_a_run(file: PipelineFile) -> None:
    made = reported(file, ANSWERS, PLANS)
    assert (made.first_s, made.last_s) == (START_S, START_S + 9.0)
    assert made.counts == {
        "answered": 8, "late": 1, "dropped": 0, "failed": 0, "refused": 1, "lost": 0,
    }  # fmt: skip
    found = made.figures
    assert (found.queries, found.violation) == (10, pytest.approx(0.2))
    assert found.accuracy == pytest.approx(0.95 * 0.8)
    assert found.devices_mean == pytest.approx((5 * 2 + 4 * 4) / 9)
    assert found.p50_ms == pytest.approx(100.0, rel=1e-2)


@pytest.mark.parametrize("years", [-50, 50])
def test_an_answer_of_a_clock_that_is_years_off_makes_no_interval_for_each_of_its_days(
    file: PipelineFile, years: int
) -> None:
    """It filled the memory with billions of them."""
    off = at(10, 4.0, answered_s=START_S + years * 365 * 86_400.0)
    made = reported(file, [*ANSWERS, off], PLANS)
    assert made.recording.ends_s == reported(file, ANSWERS, PLANS).recording.ends_s


def test_the_policies_that_were_in_force_are_reported_with_their_beginning(
    file: PipelineFile,
) -> None:
    assert reported(file, ANSWERS, PLANS).policies == (
        InForce(since_s=START_S - 10.0, policy="static"),
        InForce(since_s=START_S + 5.0, policy="loki"),
    )


def test_without_a_profile_nothing_is_known_of_accuracy(tmp_path: Path) -> None:
    path = a_cluster(tmp_path, profiles=[], cluster={"devices": {"cpu": 2}})
    made = reported(read_pipeline_file(path), ANSWERS, PLANS)
    assert made.figures.accuracy is None
    assert set(made.recording.accuracy) == {None}


def test_answers_of_a_variant_that_the_profile_no_longer_has_leave_the_accuracy_as_it_is(
    file: PipelineFile,
) -> None:
    made = START_S + 3.0
    path = (
        a_hop(task="detect", variant="former", finished_s=made + 0.05),
        a_hop(task="read", variant="small", finished_s=made + 0.1),
    )
    mixed = reported(file, [*ANSWERS, at(10, 3.0, paths=(path,))], PLANS)
    assert mixed.figures.accuracy == pytest.approx(0.95 * 0.8)
    drawn = [each for each in mixed.recording.accuracy if each is not None]
    assert drawn == pytest.approx([0.95 * 0.8] * len(drawn))
    assert reported(file, [at(0, 3.0, paths=(path,))], PLANS).figures.accuracy is None


def test_report_is_printed_and_drawn(file: PipelineFile) -> None:
    made = reported(file, ANSWERS, PLANS)
    told = report_text(made)
    assert "10 queries of lines" in told
    assert "violation    20.00 %" in told
    assert "policy: static since" in told
    page = report_page(made)
    assert page.count("<svg") == 5
    assert "over capacity" in page
    assert made.as_json()["certificate"] is None


def test_a_certificate_beside_the_file_is_shown_and_said_to_be_stale(file: PipelineFile) -> None:
    keep_prediction(file.path, "20261122T120000Z", {"predicted_at": "then"})
    store_certificate(file.path, "20261122T120000Z", a_certificate())
    made = reported(file, ANSWERS, PLANS)
    told, page = report_text(made), report_page(made)
    assert "the simulation's newest certificate: aim; predicted 2026-11-22T12:00" in told
    assert "pipeline.yaml, profile.json changed since" in told
    assert "Certificate of the simulation" in page
    assert "1100 queries of arrivals.txt" in page
    assert made.as_json()["certificate_stale"] == ["pipeline.yaml", "profile.json"]


def test_a_certificate_that_cannot_be_read_is_reported(file: PipelineFile) -> None:
    keep_prediction(file.path, "at", {})
    (folder(file.path) / "at.certificate.json").write_text("{}")
    with pytest.raises(CertificateError):
        reported(file, ANSWERS, PLANS)


class Message:
    """A record of the results topic."""

    def __init__(self, value: bytes, at_s: float) -> None:
        self._value, self._at_s = value, at_s

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, round(self._at_s * 1e3)


def test_answers_are_read_back_to_the_beginning_and_no_further() -> None:
    def message(after_s: float) -> Message:
        return Message(encode(at(1, after_s)), START_S + after_s + 0.1)

    seen = []

    def stretches() -> Any:
        for stretch in ([message(9.0), Message(b"?", START_S)], [message(3.0)], [message(1.0)]):
            seen.append(stretch)
            yield stretch

    found = answers_between(stretches(), read_answer, START_S + 6.0, START_S + 60.0)
    assert [answer.created_s - START_S for answer in found] == [9.0]
    assert len(seen) == 2


@pytest.mark.parametrize("after_s", [1e9, 1e300])
def test_a_query_from_a_clock_that_is_years_ahead_is_left_out(after_s: float) -> None:
    """It made an interval for each hour until then, or a time that no calendar has."""
    stretch = [Message(encode(at(1, each)), START_S + 9.1) for each in (after_s, 9.0)]
    found = answers_between([stretch], read_answer, START_S + 6.0, START_S + 60.0)  # type: ignore[list-item]
    assert [answer.created_s - START_S for answer in found] == [9.0]


def test_the_report_has_the_cost_where_the_cluster_has_prices(file: PipelineFile) -> None:
    types = tuple(DeviceType(name=name, device=name, price=0.9) for name, _ in file.cluster.devices)
    made = reported(replace(file, cluster=replace(file.cluster, types=types)), ANSWERS, PLANS)
    workers = sum(count for _, count in file.cluster.devices)
    found = made.as_json()
    assert found["usd_per_h"] == pytest.approx(0.9 * workers)
    spent = 0.9 * workers * 9.0 / 3600  # the queries arrived within 9 s
    assert found["usd_per_1000_answers"] == pytest.approx(spent / found["answered"] * 1000)
    assert "$ per 1000 answers" in report_text(made)
    assert "usd_per_h" not in reported(file, ANSWERS, PLANS).as_json()

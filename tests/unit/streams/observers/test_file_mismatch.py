"""Nodes that run another pipeline file are logged and counted."""

import logging
from dataclasses import replace

import pytest
from msgspec import structs

from schemas.effects import REPORTS, Arrived
from schemas.pipeline_fingerprint import fingerprint
from streams.observers.file_mismatch import GONE_S, FileMismatch
from tests.control_world import a_pipeline, an_ingress_report

OURS = a_pipeline()
OTHER = fingerprint(replace(OURS, egress_partitions=7))


def heard(files: FileMismatch, node: str, file: str, now: float) -> None:
    report = structs.replace(an_ingress_report(now, node=node), file=file)
    files.saw("control", Arrived(report, REPORTS, 0, 0, now), [], now)


def counted(files: FileMismatch) -> float:
    ((name, labels, value),) = files.samples()
    assert (name, labels) == ("nodes_with_other_file", ())
    return value


def test_another_file_is_reported_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    files = FileMismatch(OURS)
    with caplog.at_level(logging.ERROR, "headrace.node"):
        for tick in range(5):
            heard(files, "egress-0", OTHER, 100.0 + tick / 5)
            heard(files, "cpu-0", fingerprint(OURS), 100.0 + tick / 5)
            heard(files, "cpu-1", "", 100.0 + tick / 5)  # of an earlier release
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "egress-0 runs another pipeline file"
    ]
    assert counted(files) == 1.0


def test_a_node_that_has_gone_or_has_the_right_file_again_does_not_count() -> None:
    files = FileMismatch(OURS)
    heard(files, "egress-0", OTHER, 100.0)
    heard(files, "egress-1", OTHER, 100.0)
    heard(files, "egress-0", fingerprint(OURS), 100.2)
    assert counted(files) == 1.0
    heard(files, "egress-0", fingerprint(OURS), 110.0)
    assert counted(files) == 0.0


def test_nodes_that_come_and_go_for_months_are_forgotten() -> None:
    """Every pod or rented worker has a new name; the memory of the control app grew with them."""
    files = FileMismatch(OURS)
    for minute in range(1000):
        heard(files, f"cpu-{minute}", OTHER, 60.0 * minute)
    assert len(files._others) == GONE_S / 60 + 1

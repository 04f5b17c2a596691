"""benchmarks/received_reports.py: what a rig keeps of the reports of nodes."""

import pytest

from benchmarks.received_reports import Reports
from schemas.enumerations import NodeState
from schemas.records import Report, SlotState


def a_report(sent_s: float, *, incarnation: float = 1.0, epoch: int = 3) -> Report:
    return Report(
        node="w", role="worker", pipeline="p", epoch=epoch, incarnation=incarnation, sent_s=sent_s,
        state=NodeState.READY, slots=(SlotState("look", 2, 0, 0),),
    )  # fmt: skip


def test_silences_lie_between_reports_of_one_incarnation() -> None:
    reports = Reports()
    for sent_s, incarnation in ((10.0, 1.0), (10.2, 1.0), (15.0, 2.0), (15.3, 2.0)):
        reports.take(a_report(sent_s, incarnation=incarnation))
    assert reports.silences["w"] == pytest.approx([0.2, 0.3])
    assert reports["w"].sent_s == 15.3


def test_epochs_and_readers_of_slots_are_kept_once_for_each_change() -> None:
    reports = Reports()
    for epoch in (3, 3, 4, 3):
        reports.take(a_report(10.0, epoch=epoch))
    assert reports.epochs == {("w", 1.0): [3, 4, 3]}
    assert reports.slot_readers == {(3, "look", 2): {"w"}, (4, "look", 2): {"w"}}

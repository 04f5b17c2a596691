"""control/rollout/history.py: what the next plan takes from the plans so far."""

from control.rollout.history import UNREAD_S, History
from control.rollout.leases import Slots
from schemas.records import Lease, Plan, Settings
from tests.control_world import a_lease, a_pipeline


def a_plan(epoch: int, *leases: Lease) -> Plan:
    return Plan(
        pipeline="postcode", epoch=epoch, issued_s=float(epoch), reason="",
        settings=Settings(policy="static", slo_s=0.3), leases=leases,
    )  # fmt: skip


def test_an_older_plan_that_comes_late_changes_neither_the_newest_nor_the_next_epoch() -> None:
    history, newest = History(a_pipeline()), a_plan(3)
    history.add(newest)
    history.add(a_plan(2))
    assert (history.newest, history.highest, history.next_epoch) == (newest, 3, 4)


def test_slots_that_the_pipeline_file_has_were_open_from_the_first_on() -> None:
    history = History(a_pipeline(slots=4))
    beyond = a_lease("b", "read", "vit", [1, 4], 1)
    gone = a_lease("c", "read", "ocr", [2], 2)
    history.add(a_plan(1, a_lease("a", "locate", "net", [0], 0), beyond, gone))
    assert history.slots == {"locate": Slots(4, 0), "read": Slots(4)}


def test_a_plan_that_a_node_follows_is_lost_if_the_topic_does_not_deliver_it_in_time() -> None:
    history = History(a_pipeline())
    history.add(a_plan(3))
    assert not history.lost(3, 10.0)
    assert not history.lost(5, 10.0)
    assert not history.lost(5, 9.9 + UNREAD_S)
    assert history.lost(5, 10.0 + UNREAD_S)
    assert not history.lost(5, 11.0 + UNREAD_S)
    assert history.next_epoch == 6

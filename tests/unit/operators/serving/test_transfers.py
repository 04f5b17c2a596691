"""Transfers between tiers: held for the time of the link, one after another, and counted."""

from msgspec.structs import replace

from control.problem.tiers import Link
from operators.reporter import Reporter
from operators.serving.transfers import SessionLinks, Transfers
from schemas.records import ANSWERED, End, Item, Origin, SessionPlan, SessionStage, Work
from tests.session_world import a_session_pipeline

LINK = Link(bytes_per_s=1000.0, delay_s=0.1)
HOP = ("handheld", "cloud")


def a_work(session: str = "a", scan: str = "handheld", size: int = 100) -> Work:
    stages = tuple(
        SessionStage(task=task, setting=f"{task}/v", tier=tier, device=tier, slot=0, quarters=4)
        for task, tier in (("scan", scan), ("read", "cloud"))
    )
    return Work(
        query_id="q", origin=Origin(0, 0), task="read", created_s=0.0, deadline_s=9.0, epoch=1,
        items=(Item(value=b"x" * size),),
        session=SessionPlan(session=session, number=1, slo_s=1.0, stages=stages, admits=True),
    )  # fmt: skip


def transfers(links: SessionLinks) -> tuple[Transfers[str], Reporter]:
    reporter = Reporter("w", "worker", a_session_pipeline(), 0.0)
    return Transfers(links, a_session_pipeline(), reporter), reporter


def test_records_of_a_session_go_over_its_link_one_after_another() -> None:
    found, reporter = transfers(SessionLinks("handheld", {HOP: LINK}))
    assert [round(found.end_s(a_work(), 1.0, 1.01), 3) for _ in range(3)] == [1.21, 1.31, 1.41]
    assert round(found.end_s(a_work("b"), 1.0, 1.01), 3) == 1.21  # its own link
    sums = {k: round(v, 3) for k, v in reporter.counts.items() if k.startswith("hop/a/")}
    assert sums == {
        "hop/a/handheld>cloud/records": 3, "hop/a/handheld>cloud/bytes": 300,
        "hop/a/handheld>cloud/busy_s": 0.6,
    }  # fmt: skip
    found.forget(frozenset(["b"]))
    assert not any(name.startswith("hop/a/") for name in reporter.counts)


def test_nothing_is_held_within_a_tier_and_without_emulation() -> None:
    found, _ = transfers(SessionLinks("handheld", {HOP: LINK}))
    assert found.end_s(a_work(scan="cloud"), 1.0, 1.01) == 1.01
    real, reporter = transfers(SessionLinks("handheld"))
    assert real.end_s(a_work(), 1.0, 1.25) == 1.25
    assert real.end_s(a_work(), 1.1, 1.25) == 1.25  # two that arrive together
    assert round(reporter.counts["hop/a/handheld>cloud/busy_s"], 3) == 0.4


def test_an_emulated_link_takes_its_time_beside_that_of_the_broker() -> None:
    """It passed meanwhile, so that a hop took less than link and hop are predicted to take."""
    found, reporter = transfers(SessionLinks("handheld", {HOP: LINK}))
    ends = [round(found.end_s(a_work(), sent_s, 5.0), 3) for sent_s in (1.0, 1.1)]
    assert ends == [5.2, 5.3]
    assert round(reporter.counts["hop/a/handheld>cloud/busy_s"], 3) == 0.4


def test_a_changed_link_is_that_of_one_session() -> None:
    links = SessionLinks("handheld", {HOP: LINK})
    links.changed["a", HOP] = Link(100.0, 0.1)
    found, _ = transfers(links)
    assert round(found.end_s(a_work("a"), 1.0, 1.0), 3) == 2.1
    assert round(found.end_s(a_work("b"), 1.0, 1.0), 3) == 1.2


def a_result(size: int = 100, scan: str = "handheld") -> Work:
    """Return a record for egress, of the session of ``a_work``."""
    item = Item(value=b"x" * size, end=End(ANSWERED, "read"))
    return replace(a_work(scan=scan), task="", items=(item,))


def test_results_go_back_to_the_sessions_own_tier() -> None:
    found, reporter = transfers(SessionLinks("handheld", {HOP[::-1]: LINK}))
    assert [round(found.back_s(a_result(), 1.0, 1.01), 3) for _ in range(2)] == [1.21, 1.31]
    assert round(reporter.counts["hop/a/cloud>handheld/busy_s"], 3) == 0.4
    found, _ = transfers(SessionLinks("cloud", {HOP: LINK}))
    assert found.back_s(a_result(), 1.0, 1.01) == 1.01  # it has arrived
    real, reporter = transfers(SessionLinks("handheld"))
    assert real.back_s(a_result(), 1.0, 1.01) == 1.01
    assert not any(name.startswith("hop/") for name in reporter.counts)


def test_what_is_held_is_released_in_the_order_of_its_end() -> None:
    found, _ = transfers(SessionLinks("handheld"))
    found.hold("late", 2.0)
    found.hold("early", 1.0)
    assert (found.ended(0.5), found.ended(1.0), found.ended(9.0)) == ([], ["early"], ["late"])

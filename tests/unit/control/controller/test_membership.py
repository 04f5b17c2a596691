"""Worker liveness from the times of reports: silence of one worker, of the broker, of ourselves."""

from control.controller.membership import DEAD_AFTER_S, RETURN_S, Membership
from schemas.enumerations import NodeState
from schemas.records import Report

EVERY_S = 0.2


def a_report(node: str, sent_s: float) -> Report:
    return Report(
        node=node, role="worker", pipeline="p", epoch=1, incarnation=0.0, sent_s=sent_s,
        state=NodeState.READY, device="cpu", task="t", variant="v",
    )  # fmt: skip


def heard(membership: Membership, now: float, *names: str) -> None:
    membership.wake(now)
    for name in names:
        membership.listen(now)
        membership.observe(a_report(node=name, sent_s=now), now)


def lost_at(membership: Membership, since: float, *alive: str) -> dict[str, float]:
    """Return when each worker is found lost while ``alive`` continue to report."""
    found: dict[str, float] = {}
    for step in range(1, 40):
        now = since + step * EVERY_S
        heard(membership, now, *alive)
        found |= dict.fromkeys(membership.expire(now), round(now - since, 3))
    return found


def test_a_silent_worker_is_lost_while_others_report() -> None:
    membership = Membership()
    heard(membership, 0.0, "a", "b")
    assert lost_at(membership, 0.0, "a") == {"b": 1.0}


def after_an_outage(*back: str) -> tuple[Membership, float]:
    """Return a membership after a broker outage of ten seconds, after which ``back`` reported."""
    membership = Membership()
    heard(membership, 0.0, "a", "b", "c")
    for step in range(50):
        membership.wake(step * EVERY_S)
        assert membership.expire(step * EVERY_S) == ()
    heard(membership, 10.0, *back)
    return membership, 10.0


def test_after_an_outage_a_worker_has_time_to_connect_again() -> None:
    membership, now = after_an_outage("a", "b")
    assert lost_at(membership, now, "a", "b") == {"c": RETURN_S + EVERY_S}


def test_a_worker_that_was_heard_after_an_outage_and_dies_is_lost_as_at_any_time() -> None:
    """It used to get the reconnect time of 3 s instead of 0.8 s."""
    membership, now = after_an_outage("a", "b", "c")
    found = lost_at(membership, now, "a", "b")
    assert found == {"c": 1.0}
    assert found["c"] - EVERY_S <= DEAD_AFTER_S


def test_the_next_loss_is_when_the_silence_has_lasted_too_long() -> None:
    membership, now = after_an_outage("a", "b")
    assert membership.next_loss_s(now) == now + DEAD_AFTER_S
    assert membership.next_loss_s(now + DEAD_AFTER_S) == now + RETURN_S

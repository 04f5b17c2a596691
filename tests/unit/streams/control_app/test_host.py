"""streams/control_app/host.py: when the input topic is counted."""

from schemas.effects import QUERIES, Arrived, Count, Counted, Effect, Event, Failed, Wake, Woke
from streams.control_app.host import BLIND_S, COUNT_S, ControlHost


class Ticking:
    """A controller that only ticks and records its events."""

    def __init__(self) -> None:
        self.told: list[Event] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append(event)
        return [Wake(now + 0.1)] if isinstance(event, Woke) else []


def ticks(host: ControlHost, *times: float) -> list[bool]:
    """Return whether each tick requested a count."""
    return [Count() in host.handle(Woke(), now) for now in times]


def test_a_count_follows_a_tick_and_the_next_one_waits() -> None:
    controller = Ticking()
    host = ControlHost(controller)
    assert host.handle(Woke(), 5.0) == [Wake(5.1), Count()]
    # One count at a time, however long it takes.
    assert ticks(host, 5.1, 9.0) == [False, False]
    counted = Counted(arrived=7, waiting=0, at_s=9.0)
    assert host.handle(counted, 9.05) == []
    assert ticks(host, 9.06, 9.09, 9.05 + COUNT_S) == [False, False, True]
    assert counted in controller.told


def test_after_a_count_that_failed_it_is_long_not_asked_again() -> None:
    controller = Ticking()
    host = ControlHost(controller)
    host.handle(Woke(), 5.0)
    failed = Failed(QUERIES, "the broker did not say")
    assert host.handle(failed, 5.2) == []
    assert ticks(host, 5.3, 5.2 + BLIND_S - 0.1, 5.2 + BLIND_S) == [False, False, True]
    # Unknown demand is only logged: the controller uses reports of ingress.
    assert failed not in controller.told


def test_what_was_written_before_the_start_asks_for_nothing() -> None:
    host = ControlHost(Ticking())
    record = Arrived(record=None, topic="plans", slot=0, offset=0, at_s=1.0)  # type: ignore[arg-type]
    assert host.handle(record, 5.0) == []
    assert ticks(host, 5.0) == [True]

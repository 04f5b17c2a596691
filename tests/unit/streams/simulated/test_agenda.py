"""streams/simulated/agenda.py: the order of events in virtual time."""

import pytest

from streams.simulated.agenda import LANDING, Agenda


def test_records_precede_timers_and_ties_keep_the_order_of_scheduling() -> None:
    agenda, seen = Agenda(0.0), []

    def note(name: str, _: object) -> None:
        seen.append((name, agenda.now))

    agenda.push(1.0, 1.0, note, "timer", None)
    agenda.push(1.0, 0.5, note, "earlier timer", None)
    agenda.land(1.0, note, "record")
    agenda.push(1.0, 1.0, note, "second timer", None)
    agenda.push(0.5, LANDING, note, "first", None)
    agenda.run(1.0)
    assert seen == [
        ("first", 0.5), ("record", 1.0), ("earlier timer", 1.0), ("timer", 1.0),
        ("second timer", 1.0),
    ]  # fmt: skip


def test_what_is_due_in_the_past_happens_now() -> None:
    agenda, seen = Agenda(5.0), []
    agenda.push(1.0, 1.0, lambda one, other: seen.append((one, other, agenda.now)), "a", "b")
    assert agenda.step(5.0)
    assert seen == [("a", "b", 5.0)]
    assert not agenda.step(9.0)


def test_time_passes_though_nothing_happens() -> None:
    agenda = Agenda(0.0)
    agenda.run(3.0)
    assert agenda.now == 3.0
    with pytest.raises(ValueError, match="1 s is in the past; the simulation is at 3 s"):
        agenda.refuse_past(1.0)

"""Slots change hands in order, once earlier sends are confirmed or after ten seconds."""

from streams.kafka.hand_overs import HandOver, HandOvers


def a_change(number: int, behind: int, by_s: float = 10.0) -> HandOver:
    return HandOver(number, (), (("work", 0),), commits=True, behind=behind, by_s=by_s)


def numbers(changes: HandOvers, confirmed: int, now: float) -> list[int]:
    return [change.number for change in changes.due(confirmed, now)]


def test_a_change_waits_until_the_turns_before_it_are_confirmed() -> None:
    changes = HandOvers()
    changes.add(a_change(1, behind=3))
    assert numbers(changes, 2, 0.0) == []
    assert changes
    assert numbers(changes, 3, 0.0) == [1]
    assert not changes


def test_a_change_is_made_when_its_time_has_come_although_nothing_is_confirmed() -> None:
    changes = HandOvers()
    changes.add(a_change(1, behind=3, by_s=10.0))
    assert numbers(changes, 0, 9.9) == []
    assert numbers(changes, 0, 10.0) == [1]


def test_a_later_change_waits_for_the_earlier_ones() -> None:
    changes = HandOvers()
    for number, behind in ((1, 0), (2, 5), (3, 0)):
        changes.add(a_change(number, behind))
    assert numbers(changes, 0, 0.0) == [1]
    assert numbers(changes, 4, 0.0) == []
    assert numbers(changes, 5, 0.0) == [2, 3]

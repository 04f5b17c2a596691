"""Each observer of a role sees the events with something at which it looks, once each."""

from collections.abc import Sequence

from schemas.effects import Arrived, Effect, Event, Failed, Send, Wake, Woke
from schemas.records import Command, Notice, Query, Report, Work
from streams.observers.watchers import Watchers
from tests.builders import a_notice, a_work
from tests.control_world import an_ingress_report

QUERY = Arrived(Query(payload=b"x"), "queries", 0, 0, 0.0)
REPORTS = [Send("reports", an_ingress_report(0.0), 0), Wake(1.0)]


class Watching:
    def __init__(self, *kinds: type) -> None:
        self.kinds = frozenset(kinds)
        self.seen: list[tuple[str, Event, Sequence[Effect], float]] = []

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        self.seen.append((node, event, effects, now))


def test_an_observer_sees_the_events_with_what_it_looks_at() -> None:
    events, effects = Watching(Query, Failed), Watching(Report, Notice, Command)
    watchers = Watchers([events, effects])
    work = [Send("work.read", a_work(0), 0)]
    sent = [Send("outputs", a_notice(0), 0), *REPORTS]
    told = [
        ("i", QUERY, work, 1.0), ("i", Woke(), sent, 2.0), ("w", Failed("v", "no"), (), 3.0),
        ("w", Arrived(a_work(1), "work.read", 0, 1, 3.5), [Wake(4.0)], 4.0),
    ]  # fmt: skip
    for each in told:
        watchers.saw(*each)
    assert events.seen == [told[0], told[2]]
    assert effects.seen == [told[1]]


def test_all_observers_of_an_event_see_it() -> None:
    both = [Watching(Work), Watching(Work, Report)]
    watchers = Watchers(both)
    watchers.saw("w", Woke(), [Send("outputs", a_work(0), 0), *REPORTS], 1.0)
    assert [len(each.seen) for each in both] == [1, 1]

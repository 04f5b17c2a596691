"""Whole systems in virtual time keep the invariants after every event and pass the checks at the
end."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from schemas.effects import (
    OUTPUTS,
    QUERIES,
    Arrived,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    Send,
    work_topic,
)
from schemas.records import Answer, Hop, Item, Notice, Origin, Record, Work
from tests.simulation.scenarios import Death, Scenario, World

Piece = tuple[Origin, tuple[int, ...]]  # a query's branch


class Invariants:
    """Check what must hold after every event, with any deaths. Observes the nodes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.busy: dict[str, int] = {}  # the job that a device runs
        self.credits: dict[str, dict[Piece, int]] = {}  # of arrived items, by node
        self.onward: set[Piece] = set()  # pieces whose outcome was sent on
        self.noticed: set[Origin] = set()
        self.answered: dict[Origin, Answer] = {}
        self.checked: dict[tuple[str, int], int] = {}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        assert now >= self.now, f"time went back from {self.now} to {now}"
        self.now = now
        if isinstance(event, Arrived) and isinstance(event.record, Work):
            mine = self.credits.setdefault(node, {})
            mine.update({(event.record.origin, i.branch): i.credit for i in event.record.items})
        if isinstance(event, Inferred | Failed):
            self.busy.pop(node, None)
        for effect in effects:
            if isinstance(effect, Infer):
                assert node not in self.busy, f"{node} runs two batches"
                self.busy[node] = effect.job
        records = [effect.record for effect in effects if isinstance(effect, Send)]
        if node.startswith("w"):
            self._conserved(node, [record for record in records if isinstance(record, Work)])
        for record in records:
            self._sent(record)

    def died(self, node: str) -> None:
        self.busy.pop(node, None)

    def _conserved(self, node: str, sent: list[Work]) -> None:
        """Check that the results of an item have exactly the item's credit."""
        shares: dict[Piece, int] = {}
        for work in sent:
            for item in work.items:
                shares.setdefault(self._parent(node, work.origin, item), 0)
                shares[self._parent(node, work.origin, item)] += item.credit
        for piece, credit in shares.items():
            # A piece that was processed twice upstream may arrive twice, even in one batch.
            assert credit % self.credits[node][piece] == 0, f"{node} changed {piece}'s credit"
            self.onward.add(piece)

    def _parent(self, node: str, origin: Origin, item: Item) -> Piece:
        own = (origin, item.branch)
        ends_here = item.end is not None and own in self.credits[node]
        return own if ends_here else (origin, item.branch[:-2])

    def _sent(self, record: Record) -> None:
        if isinstance(record, Notice):
            self.noticed.update(Origin(record.partition, q.offset) for q in record.queries)
        if isinstance(record, Work):
            for item in record.items:
                told_in_order(item.path, record.created_s, self.now)
        if isinstance(record, Answer):
            assert record.origin not in self.answered, f"{record.id} was answered twice"
            self.answered[record.origin] = record

    def committed(self, world: World) -> None:
        """Check that every record below a committed offset is fully processed."""
        topics = [QUERIES, OUTPUTS, *map(work_topic, world.pipeline.task_names)]
        for topic in topics:
            for slot, (offset, _) in world.simulated.committed(topic).items():
                before = self.checked.get((topic, slot), 0)
                if offset > before:
                    log = world.simulated.written(topic)[slot]
                    for at in range(before, offset):
                        self._settled(topic, slot, at, log[at][0])
                    self.checked[topic, slot] = offset

    def _settled(self, topic: str, slot: int, offset: int, record: Record) -> None:
        where = f"{topic}[{slot}] was committed past offset {offset}"
        if topic == QUERIES:
            assert Origin(slot, offset) in self.noticed, f"{where}, which egress does not know"
        elif isinstance(record, Notice):
            for query in record.queries:
                origin = Origin(record.partition, query.offset)
                assert origin in self.answered, f"{where}, a notice of {query} without answer"
        elif isinstance(record, Work) and topic == OUTPUTS:
            assert record.origin in self.answered, f"{where}, of {record.origin} without answer"
        elif isinstance(record, Work):
            for item in record.items:
                assert (record.origin, item.branch) in self.onward, f"{where}, unfinished {item}"


def told_in_order(path: tuple[Hop, ...], created_s: float, now: float) -> None:
    """Check that hops start before they finish, and only after their predecessor finished."""
    times = [created_s]
    for hop in path:
        times += [hop.received_s, hop.started_s, hop.finished_s]
    assert all(a <= b for a, b in pairwise([*times, now])), f"a path out of order: {path}"


def play(scenario: Scenario) -> World:
    """Run a scenario and check it; every failure contains the call that repeats it."""
    invariants = Invariants()
    world = World(scenario, invariants)
    for death in scenario.deaths:
        name = world.names[death.node % len(world.names)]
        # The deaths of a worker may overlap: the second start ends the first life.
        for at_s in (death.at_s, death.at_s + death.for_s):
            world.simulated.at(at_s, lambda name=name: invariants.died(name))  # type: ignore[misc]
    try:
        for _ in world.run():
            invariants.committed(world)
        every_query_ends_once(world)
    except Exception as error:
        error.add_note(f"repeat it with tests/simulation/test_invariants.py: play({scenario!r})")
        raise
    return world


def every_query_ends_once(world: World) -> None:
    asked = [
        Origin(slot, offset)
        for slot, log in world.simulated.written(QUERIES).items()
        for offset in range(len(log))
    ]
    answers = world.answers()
    assert sorted(map(place, asked)) == sorted(place(answer.origin) for answer in answers)
    for answer in answers:
        if answer.outcome == "answered" and not answer.incomplete:
            assert all(end.outcome == "answered" for end in answer.ends)


def place(origin: Origin) -> tuple[int, int]:
    return (origin.partition, origin.offset)


times = st.floats(0.05, 2.0).map(lambda at_s: round(at_s, 3))
scenarios = st.builds(
    Scenario,
    seed=st.integers(0, 2**32 - 1),
    fan_outs=st.lists(st.integers(0, 4), max_size=2).map(tuple),
    workers=st.integers(3, 5),
    queries=st.integers(1, 30),
    slo_s=st.sampled_from([0.03, 0.1, 0.4]),
    deaths=st.lists(
        st.builds(Death, times, st.integers(0, 6), st.sampled_from([0.0, 0.02, 0.3])), max_size=4
    ).map(tuple),
    moves=st.lists(times, max_size=4, unique=True).map(tuple),
    incomplete=st.sampled_from(["answered", "dropped"]),
)


@pytest.mark.thorough
@given(scenarios)
@settings(max_examples=100, deadline=None)
def test_every_admitted_query_ends_exactly_once_whatever_dies(scenario: Scenario) -> None:
    note(f"repeat it with play({scenario!r})")
    play(scenario)


def test_without_faults_and_with_time_enough_every_query_is_answered() -> None:
    scenario = Scenario(seed=1, fan_outs=(3, 2), workers=4, queries=30, slo_s=2.0)
    outcomes = {(answer.outcome, answer.late) for answer in play(scenario).answers()}
    assert ("answered", False) in outcomes
    assert outcomes <= {("answered", False), ("failed", False)}


def test_a_failure_says_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = Scenario(seed=1, fan_outs=(), workers=3, queries=3, slo_s=2.0)

    def lie(world: World) -> None:
        raise AssertionError("a lie")

    monkeypatch.setitem(play.__globals__, "every_query_ends_once", lie)
    with pytest.raises(AssertionError) as caught:
        play(scenario)
    assert caught.value.__notes__ == [
        f"repeat it with tests/simulation/test_invariants.py: play({scenario!r})"
    ]
    assert eval(repr(scenario)) == scenario


def test_deaths_of_one_worker_may_overlap() -> None:
    play(
        Scenario(
            seed=4996594,
            fan_outs=(0,),
            workers=3,
            queries=11,
            slo_s=0.1,
            deaths=(Death(at_s=0.5, node=2, for_s=0.3), Death(at_s=0.5, node=2, for_s=0.0)),
        )
    )

"""Sessions are replanned automatically after changes of links or data, in virtual time."""

from collections.abc import Mapping

import numpy as np
import pytest

from control.problem.session_space import SessionSpace
from control.problem.tiers import Link
from operators.scoring.scorer import Scorer, exact_match
from schemas.effects import LABELS, RESULTS, Arrived, Assign, Effect, Event, Send, Woke
from schemas.enumerations import SessionState
from schemas.pipeline import Labels
from schemas.records import Answer, Label, Session
from tests.session_world import Profilers, Scores
from tests.simulation.session_system import LOAD_S, World

SLOW, FAST = Link(60_000.0, 0.005), Link(100_000.0, 0.005)  # bytes a second
BROAD = Link(1e6, 0.01)
PAYLOAD = "s" * 900  # bytes; the profilers report about the same size
CHANGE_S = 12.0


def both_ways(links: Mapping[tuple[str, str], Link]) -> dict[tuple[str, str], Link]:
    return {**links, **{(to, from_): link for (from_, to), link in links.items()}}


LINKS = both_ways(
    {("handheld", "depot"): FAST, ("handheld", "cloud"): SLOW, ("depot", "cloud"): BROAD}
)


def by_variant(v: float, w: float) -> Scores:
    """Return scores that depend on the reader only."""
    return lambda options: w if options["read.variant"] == "w" else v


class Labeller:
    """A user who labels every answer: right with the current probability of its path."""

    def __init__(self, space: SessionSpace, before: Scores, after: Scores) -> None:
        self._space, self._before, self._after = space, before, after
        self._rng = np.random.default_rng(3)
        self._began = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Woke) and not self._began:
            self._began = True
            return [Assign(RESULTS, tuple(range(4)))]
        if not (isinstance(event, Arrived) and isinstance(event.record, Answer)):
            return []
        answer = event.record
        scores = self._after if answer.id.startswith("a-") and now >= CHANGE_S else self._before
        reader = next((hop.variant for path in answer.paths for hop in path[1:]), "v")
        right = self._rng.random() < scores({"read.variant": reader.partition("@")[0]})
        label = Label(id=answer.id, right=float(right), of=1.0)
        return [Send(LABELS, label, 0, answer.id)]


class Adapting(World):
    """A system with a profiler, emulated links, and labels of the answers."""

    def __init__(self, before: Scores, after: Scores, load_s: float = LOAD_S) -> None:
        labels = Labels()
        super().__init__({"handheld": 3, "depot": 2, "cloud": 2}, LINKS, load_s, labels=labels)
        self.profilers = Profilers(before, recent=after)
        self.system.start("profiler", self.profilers)
        scorer = Scorer(
            "scorer", self.pipeline, labels, exact_match, incarnation=0.0,
            answer_slots=range(4), label_slots=(0,),
        )  # fmt: skip
        self.system.start("scorer", scorer)
        self.system.start("labeller", Labeller(self.space, before, after))

    def chosen(self, name: str) -> Mapping[str, str]:
        """Return the settings of the plan in force of a session."""
        session = self.session(name)
        return session.plans[session.chosen].settings

    def served(self, name: str) -> list[Session]:
        """Return the records of a session at which it started to serve."""
        rows = [each for each in self.records("sessions") if each.id == name]
        return [
            each
            for at, each in enumerate(rows)
            if each.state is SessionState.SERVING
            and (at == 0 or rows[at - 1].state is not SessionState.SERVING)
        ]

    def on_time(self, name: str, from_s: float, upto_s: float) -> float:
        """Return the share of a session's queries, by arrival, that were answered in time."""
        rows = [each for each in self.answers(name) if from_s <= each.created_s < upto_s]
        good = [r for r in rows if r.outcome == "answered" and r.answered_s <= r.deadline_s]
        return len(good) / len(rows)


STEADY = by_variant(0.97, 0.97)


def opened(world: Adapting) -> Adapting:
    for at_s, name in ((1.0, "a"), (1.1, "b")):
        world.command(at_s, "open-session", session=name, slo="200ms")
        world.ask(name, 8.0, 30.0, payload=PAYLOAD)
    return world


@pytest.mark.thorough
@pytest.mark.parametrize("later_s", [0.0, 0.037, 0.074, 0.15])  # the first estimate may be partial
def test_a_link_ten_times_slower_is_left_within_a_second_and_nothing_is_profiled(
    later_s: float,
) -> None:
    world = opened(Adapting(STEADY, STEADY))
    world.system.run(CHANGE_S + later_s)
    assert world.links is not None
    between = ("handheld", "depot")
    world.links.changed["a", between] = Link(FAST.bytes_per_s / 10, FAST.delay_s)
    run, others = len(world.profilers.run), world.session("b")
    world.system.run(32.0)
    session = world.session("a")
    assert session.cause.startswith("its link handheld>depot is ")
    assert session.replans <= 2
    assert session.stopped == "priced"
    assert len(world.profilers.run) == run
    assert world.on_time("a", 8.0, CHANGE_S) > 0.95
    assert world.on_time("a", CHANGE_S + 1.0, 30.0) > 0.95
    back_s = world.served("a")[-1].changed_s - CHANGE_S - later_s
    assert back_s < 1.0
    assert world.session("b") == others  # the other session's plan is unchanged


def test_a_link_that_falls_again_and_again_is_left_each_time_within_a_second() -> None:
    world = opened(Adapting(STEADY, STEADY))
    assert world.links is not None
    between = ("handheld", "depot")
    falls, recovers_s = (CHANGE_S, CHANGE_S + 8.0), CHANGE_S + 5.0
    world.command(recovers_s, "replan-session", session="a")  # an unused link is not measured
    for fall_s in falls:
        world.system.run(fall_s)
        before = world.session("a")
        assert before.plans[before.chosen].tiers["read"] == "depot"
        world.links.changed["a", between] = Link(FAST.bytes_per_s / 10, FAST.delay_s)
        world.system.run(fall_s + 4.0)
        session = world.session("a")
        assert session.plans[session.chosen].tiers["read"] == "cloud"
        assert 0 < session.changed_s - fall_s < 1.0
        assert world.on_time("a", fall_s + 1.0, fall_s + 4.0) > 0.95
        del world.links.changed["a", between]
    assert {each.outcome for each in world.answers("b")} == {"answered"}


def test_a_link_that_is_too_slow_for_all_queries_together_is_left() -> None:
    world = opened(Adapting(STEADY, STEADY))
    world.system.run(CHANGE_S)
    assert world.links is not None
    # A query takes 50 of its 200 ms; 20 queries a second occupy the link permanently.
    world.links.changed["a", ("handheld", "depot")] = Link(FAST.bytes_per_s / 5.5, FAST.delay_s)
    world.system.run(32.0)
    session = world.session("a")
    assert session.plans[session.chosen].tiers["read"] == "cloud"
    assert world.on_time("a", CHANGE_S + 2.0, 30.0) > 0.95


def test_an_accuracy_drop_is_detected_and_replanned_within_ten_seconds() -> None:
    world = opened(Adapting(STEADY, by_variant(0.4, 0.96)))
    world.system.run(CHANGE_S)
    assert world.chosen("a")["read"].startswith("read/v")
    others = world.session("b")
    world.system.run(32.0)
    session = world.session("a")
    assert session.cause == "its measured accuracy is below 0.9"
    assert session.samples.startswith("recent@a@")
    assert world.chosen("a")["read"].startswith("read/w")
    assert session.replans == 1
    assert 0 < session.detect_s < 5.0
    assert world.served("a")[-1].changed_s - CHANGE_S < 10.0
    assert world.session("b") == others


def test_a_session_uses_the_most_accurate_plan_if_no_plan_is_accurate_enough() -> None:
    world = opened(Adapting(STEADY, by_variant(0.3, 0.8)))
    world.system.run(CHANGE_S)
    assert world.chosen("a")["read"].startswith("read/v")
    world.system.run(30.0)
    assert world.chosen("a")["read"].startswith("read/w")
    plan = world.session("a").plans[0]
    assert 0.6 < (plan.accuracy or 0.0) < 0.9
    early, late = world.served("a")[-2:]
    assert early.steps < late.steps  # it did not wait for the end of the search


def test_a_session_whose_tier_is_lost_serves_by_another_plan_within_a_second() -> None:
    world = opened(Adapting(STEADY, STEADY, load_s=0.01))  # like the postcode example's models
    world.system.run(CHANGE_S)
    (plan,) = [each for each in world.plan().sessions if each.session == "a" and each.admits]
    lost = next(stage.tier for stage in plan.stages if stage.task == "read")
    for worker in world.seats:
        if worker.startswith(lost):
            world.system.kill(worker)
    run = len(world.profilers.run)
    world.system.run(32.0)
    session = world.session("a")
    assert session.plans[session.chosen].tiers["read"] != lost
    assert world.served("a")[-1].changed_s - CHANGE_S < 1.0
    assert world.on_time("a", CHANGE_S + 1.0, 30.0) == 1.0
    assert len(world.profilers.run) == run  # no search, because it has other plans to choose from


def test_a_session_that_loses_its_tier_while_it_is_planned_anew_serves_by_a_known_plan() -> None:
    world = opened(Adapting(STEADY, by_variant(0.4, 0.96), load_s=0.01))
    world.system.run(CHANGE_S)
    world.system.kill("profiler")  # so the search on the new inputs does not end
    world.system.run(CHANGE_S + 5.0)
    assert world.session("a").state is SessionState.REPLANNING
    (plan,) = [each for each in world.plan().sessions if each.session == "a" and each.admits]
    lost = next(stage.tier for stage in plan.stages if stage.task == "read")
    for worker in world.seats:
        if worker.startswith(lost):
            world.system.kill(worker)
    world.system.run(32.0)
    session = world.session("a")
    assert session.plans[session.chosen].tiers["read"] != lost
    assert 0 < world.served("a")[-1].changed_s - CHANGE_S - 5.0 < 1.0


def test_nothing_is_planned_anew_while_nothing_changes() -> None:
    world = opened(Adapting(STEADY, STEADY))
    world.system.run(32.0)
    assert [world.session(name).replans for name in ("a", "b")] == [0, 0]


def test_a_search_that_does_not_help_is_not_repeated_at_once() -> None:
    world = opened(Adapting(STEADY, by_variant(0.4, 0.5)))
    world.system.run(32.0)
    session = world.session("a")
    assert session.replans == 2  # ten seconds after the first search
    assert session.state is SessionState.SERVING  # by the plan that it had
    assert session.reason.startswith("no plan meets its objectives")

"""Sessions opened without a plan are searched, scheduled and served, in virtual time."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from control.problem.sample_sets import Truth
from schemas.effects import COMMAND_RESULTS, PLANS, PROFILE_RESULTS, SESSIONS, Arrived, Event
from schemas.enumerations import SessionState
from schemas.pipeline import Policy
from schemas.records import Session
from tests.session_world import Profilers
from tests.simulation.session_system import World


def scores(options: Mapping[str, str]) -> float:
    """Return the share of right answers: ``w`` is accurate, ``v`` with three votes nearly."""
    return 0.97 if options["read.variant"] == "w" else 0.6 + 0.1 * int(options["read.votes"])


class Planned(World):
    """A system with a profiler; ``profilers.run`` are the blocks that it ran."""

    def __init__(
        self, counts: Mapping[str, int] | None = None, seconds: float = 0.002, **changes: Any
    ) -> None:
        super().__init__(counts, **changes)
        self.profilers = Profilers(scores, seconds)
        self.system.start("profiler", self.profilers)

    def states(self, name: str) -> list[SessionState]:
        found = [each.state for each in self.records(SESSIONS) if each.id == name]
        return [s for at, s in enumerate(found) if at == 0 or found[at - 1] is not s]


@pytest.fixture
def world() -> Planned:
    return Planned()


def test_a_session_without_a_plan_is_searched_placed_and_served(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.ask("a", 8.0, 9.0)
    world.system.run(12.0)
    session = world.session("a")
    assert world.states("a") == [
        SessionState.SEARCHING, SessionState.WAITING, SessionState.SERVING,
    ]  # fmt: skip
    chosen = session.plans[session.chosen]
    assert chosen.settings["read"].startswith("read/w@")
    assert (chosen.accuracy or 0.0) >= 0.9
    assert chosen.latency_s <= 0.5
    assert [each.usd_per_h for each in session.plans] == sorted(
        each.usd_per_h for each in session.plans
    )
    assert session.stopped == "space"
    assert session.steps > 0
    assert 0 < session.profile_s <= session.search_s < 6
    answers = world.answers("a")
    assert {each.outcome for each in answers} == {"answered"}
    expected = {(chosen.settings["scan"], chosen.settings["read"])}
    assert {tuple(hop.key for hop in path) for x in answers for path in x.paths} == expected


def test_a_session_serves_by_its_first_plan_while_its_search_goes_on() -> None:
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="60ms", accuracy="0.55")
    world.ask("a", 3.0, 12.0)
    world.system.run(15.0)
    served = [each for each in world.records(SESSIONS) if each.state is SessionState.SERVING]
    first, last = served[0], served[-1]
    assert first.changed_s - first.opened_s < 1.5
    assert (first.stopped, last.stopped) == ("", "deadline")
    assert last.search_s > 5.0
    assert 0 < first.first_s == last.first_s < 1.5
    assert first.first_s <= first.planned_s <= first.serving_s < 1.5
    assert (last.planned_s, last.serving_s) == (first.planned_s, first.serving_s)
    assert (first.chosen, last.chosen, last.number) == (0, 0, 2)
    before, after = first.plans[0], last.plans[0]
    assert (after.accuracy or 0.0, after.usd_per_h) > (before.accuracy or 0.0, before.usd_per_h)
    around = [each for each in world.answers("a") if abs(each.created_s - last.changed_s) < 2.0]
    assert {each.outcome for each in around} == {"answered"}


def test_a_session_on_known_samples_serves_without_a_profile(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.run(8.0)
    run = len(world.profilers.run)
    world.command(8.0, "open-session", session="b", slo="500ms", accuracy="0.8")
    world.system.run(12.0)
    served = next(
        each
        for each in world.records(SESSIONS)
        if each.id == "b" and each.state is SessionState.SERVING
    )
    assert served.changed_s - served.opened_s < 1.0
    assert served.profile_s == 0
    assert served.steps <= run


def test_searches_without_a_plan_have_the_profiler_first() -> None:
    world = Planned(seconds=0.02)
    for number in range(4):
        accuracy = f"{0.8 + 0.04 * number:g}"
        at_s = 1.0 + number / 100
        world.command(at_s, "open-session", session=f"s{number}", slo="500ms", accuracy=accuracy)
    world.system.run(60.0)
    served: dict[str, Session] = {}
    for each in world.records(SESSIONS):
        if each.state is SessionState.SERVING:
            served.setdefault(each.id, each)
    assert max(each.changed_s - each.opened_s for each in served.values()) < 6.0
    ends = [world.session(f"s{number}") for number in range(4)]
    assert all(each.stopped in ("space", "deadline") for each in ends)


def test_two_profilers_share_the_blocks_of_one_search() -> None:
    """The samples of every configuration are divided, so that each is tested sooner."""
    alone, shared = Planned(seconds=0.02), Planned(seconds=0.02)
    shared.system.kill("profiler")
    both = [Profilers(scores, 0.02, partitions=range(n, 8, 2)) for n in range(2)]
    for number, profiler in enumerate(both):
        shared.system.start(f"profiler-{number}", profiler)
    for each in (alone, shared):
        each.command(1.0, "open-session", session="a", slo="500ms")
        each.system.run(12.0)
    took = [each.session("a").first_s for each in (alone, shared)]
    assert 0.4 < took[1] / took[0] < 0.7
    blocks = [set(profiler.run) for profiler in both]
    assert not blocks[0] & blocks[1]
    assert {name for name, _ in blocks[0]} == {name for name, _ in blocks[1]}


def test_no_block_is_run_twice_for_sessions_on_the_same_samples(world: Planned) -> None:
    for number in range(3):
        world.command(1.0 + number, "open-session", session=f"s{number}", slo="500ms")
    world.system.run(20.0)
    assert len(world.profilers.run) == len(set(world.profilers.run))
    # After the first search the profiles of the samples are known.
    assert world.session("s0").profile_s > 0
    assert world.session("s2").profile_s == 0


def test_without_a_plan_within_the_cost_the_nearest_is_reported(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms", cost="0.001")
    world.system.run(12.0)
    session = world.session("a")
    assert (session.state, session.plans) == (SessionState.WAITING, ())
    assert session.reason.startswith("no plan meets its objectives: ")
    assert "$/h (0.001 $/h wanted)" in session.reason


def test_without_a_plan_within_the_latency_the_nearest_is_reported(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="2ms")
    world.system.run(12.0)
    assert "ms (2 ms wanted)" in world.session("a").reason


def test_a_search_ends_at_its_deadline_with_what_it_has() -> None:
    world = Planned(seconds=0.08)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.run(20.0)
    session = world.session("a")
    assert session.stopped == "deadline"
    assert 5.0 <= session.search_s < 6.5


def test_a_search_without_a_profiler_waits_for_one_and_says_so(world: Planned) -> None:
    world.system.kill("profiler")
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.run(10.0)
    assert world.session("a").reason == "its search is waiting for a profiler"
    world.system.start("profiler", Profilers(scores))
    world.system.run(40.0)
    assert world.session("a").state is SessionState.SERVING


def test_sessions_that_contend_are_served_by_a_schedule() -> None:
    world = Planned({"handheld": 4, "depot": 1, "cloud": 1})
    for number in range(4):
        world.command(1.0 + number / 100, "open-session", session=f"s{number}", slo="500ms")
    world.system.run(20.0)
    found = [world.session(f"s{number}") for number in range(4)]
    assert {each.state for each in found} == {SessionState.SERVING}
    assert len(world.plan().sessions) == 4


def test_a_search_ends_when_its_session_is_closed() -> None:
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.command(1.5, "close-session", session="a")
    world.system.run(4.0)
    assert world.results()["close-session"].ok
    assert world.states("a") == [SessionState.SEARCHING, SessionState.CLOSING]
    assert not world.plan().sessions
    run = len(world.profilers.run)
    world.system.run(8.0)
    assert len(world.profilers.run) == run
    world.command(8.0, "open-session", session="a", slo="500ms")
    world.system.run(20.0)
    assert world.session("a").state is SessionState.SERVING


def test_a_session_that_serves_is_planned_again_without_a_gap(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.command(8.0, "replan-session", session="a")
    world.ask("a", 7.0, 12.0)
    world.system.run(15.0)
    assert {each.outcome for each in world.answers("a")} == {"answered"}
    assert world.states("a")[-2:] == [SessionState.REPLANNING, SessionState.SERVING]
    assert len(world.profilers.run) == len(set(world.profilers.run))


def test_a_new_plan_of_one_session_changes_no_plan_of_the_others() -> None:
    world = Planned({"handheld": 4, "depot": 1, "cloud": 2})
    for number, slo in enumerate(("60ms", "500ms", "500ms")):
        at_s = 1.0 + number / 100  # it is in the command's id
        world.command(at_s, "open-session", session=f"s{number}", slo=slo, accuracy="0.65")
    world.system.run(15.0)
    before = {each.session: each for each in world.plan().sessions if each.admits}
    assert set(before) == {"s0", "s1", "s2"}
    world.command(15.0, "set-session-slo", session="s0", slo="500ms", accuracy="0.9")
    world.system.run(30.0)
    after = {each.session: each for each in world.plan().sessions if each.admits}
    assert after.pop("s0").stages != before.pop("s0").stages
    assert after == before
    assert [world.session(name).replans for name in ("s0", "s1", "s2")] == [1, 0, 0]


class Restored:
    """A controller that first reads its topics back, as its drivers do."""

    def __init__(self, world: Planned) -> None:
        self._world, self._controller = world, world.controller()
        self._began = False

    def handle(self, event: Event, now: float) -> Any:
        if not self._began:
            self._began = True
            for topic in (PLANS, COMMAND_RESULTS, SESSIONS, PROFILE_RESULTS):
                for offset, record in enumerate(self._world.records(topic)):
                    self._controller.handle(Arrived(record, topic, 0, offset, now), now)
        return self._controller.handle(event, now)


@pytest.mark.parametrize("dies_s", [1.3, 1.5, 2.0])
def test_a_search_outlives_the_control_app_and_runs_no_block_twice(
    world: Planned, dies_s: float
) -> None:
    undisturbed = Planned()
    for each in (undisturbed, world):
        each.command(1.0, "open-session", session="a", slo="500ms")
    undisturbed.system.run(20.0)
    world.system.at(dies_s, lambda: world.system.kill("control"))
    world.system.at(dies_s + 1.0, lambda: world.system.start("control", Restored(world)))
    world.system.run(20.0)
    assert len(world.profilers.run) == len(set(world.profilers.run))
    assert set(world.profilers.run) == set(undisturbed.profilers.run)

    def plans(world: Planned) -> Session:
        return world.session("a")

    assert plans(world).plans == plans(undisturbed).plans
    assert plans(world).state is SessionState.SERVING


def test_a_search_keeps_its_deadline_and_its_spending_over_a_restart_of_the_control_app() -> None:
    world = Planned(seconds=0.08)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.at(4.0, lambda: world.system.kill("control"))
    world.system.at(4.5, lambda: world.system.start("control", Restored(world)))
    world.system.run(20.0)
    session = world.session("a")
    assert session.stopped == "deadline"
    assert 5.0 <= session.search_s < 6.5
    assert 4.0 <= session.profile_s <= 5.0  # 0.8 per block, before the restart and after it


@pytest.mark.parametrize("dies_s", [1.3, 1.6, 2.5])
def test_a_search_goes_on_although_no_control_app_ran_for_longer_than_its_deadline(
    dies_s: float,
) -> None:
    """A killed app is replaced after six seconds, and a search has five by default: it ended with
    nothing profiled, and its session stayed without a plan."""
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.at(dies_s, lambda: world.system.kill("control"))
    world.system.at(dies_s + 8.0, lambda: world.system.start("control", Restored(world)))
    world.system.run(30.0)
    session = world.session("a")
    assert (session.state, session.stopped) == (SessionState.SERVING, "space")
    assert len(world.profilers.run) == len(set(world.profilers.run))


def test_a_search_goes_on_although_its_profiler_was_away_for_longer_than_its_deadline() -> None:
    """The requests of a killed profiler go to the others after six seconds."""
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.system.at(1.6, lambda: world.system.kill("profiler"))
    world.system.at(9.0, lambda: world.system.start("profiler", Profilers(scores, 0.02)))
    world.system.run(8.9)
    assert world.session("a").reason == "its search is waiting for a profiler"
    world.system.run(40.0)
    session = world.session("a")
    assert (session.state, session.stopped) == (SessionState.SERVING, "space")


@pytest.mark.parametrize("dies_s", [1.3, 1.6, 2.5])
def test_a_search_goes_on_although_profiler_and_control_app_died_together(dies_s: float) -> None:
    """The gap between blocks before and after counted to the deadline: the search ended as the next
    control app began, and its session stayed without a plan."""
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="500ms")

    def die() -> None:
        world.system.kill("profiler")
        world.system.kill("control")

    world.system.at(dies_s, die)
    profiler = Profilers(scores, 0.02)
    world.system.at(dies_s + 7.0, lambda: world.system.start("profiler", profiler))
    world.system.at(dies_s + 8.0, lambda: world.system.start("control", Restored(world)))
    world.system.run(40.0)
    session = world.session("a")
    assert (session.state, session.stopped) == (SessionState.SERVING, "space")


THOUSAND = 1000


@pytest.mark.thorough
def test_a_thousand_sessions_opened_at_once_lose_no_command_and_cause_few_plans() -> None:
    world = Planned({"handheld": 4, "depot": 1, "cloud": 1})
    for number in range(THOUSAND):
        world.command(1.0 + number * 1e-4, "open-session", session=f"s{number}", slo="500ms")
    for number in range(0, THOUSAND, 2):
        world.command(60.0 + number * 1e-4, "close-session", session=f"s{number}")
    world.system.run(59.0)
    results = world.records(COMMAND_RESULTS)
    assert (len(results), all(each.ok for each in results)) == (THOUSAND, True)
    found = {each.id: each for each in world.records(SESSIONS)}
    states = Counter(each.state for each in found.values())
    assert states == {SessionState.SERVING: 4, SessionState.WAITING: THOUSAND - 4}
    assert all(each.plans for each in found.values())
    assert len(world.records(PLANS)) < 20
    world.system.run(80.0)
    served = {each.session for each in world.plan().sessions}
    assert len(served) == 4
    assert all(int(name[1:]) % 2 for name in served)  # the even ones are closed
    assert len(world.records(PLANS)) < 40


def test_a_session_without_queries_is_closed_where_the_file_says_so() -> None:
    world = Planned(policies=(Policy(name="compass", kind="compass", options={"idle": 5.0}),))
    for at_s, name in ((1.0, "idle"), (1.1, "busy")):
        world.command(at_s, "open-session", session=name, slo="500ms")
    world.ask("busy", 3.0, 18.0, qps=1.0)
    world.system.run(6.0)
    assert {each.session for each in world.plan().sessions} == {"idle", "busy"}
    world.system.run(18.0)
    assert {each.session for each in world.plan().sessions} == {"busy"}
    assert world.session("idle").state is SessionState.CLOSING
    world.system.run(30.0)  # the queries of the other one have ended, too
    assert world.session("busy").state is SessionState.CLOSING


def test_with_feedback_a_session_is_searched_on_the_labelled_inputs_of_all() -> None:
    world = Planned(truth=Truth.FEEDBACK)
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.command(6.0, "open-session", session="b", slo="500ms", samples="workload@7")
    world.system.run(12.0)
    session = world.session("a")
    assert (session.state, session.samples) == (SessionState.SERVING, "recent@@0")
    refused = world.results()["open-session"]
    assert (refused.ok, refused.message) == (
        False,
        "no sample set 'workload@7': profiling.truth is feedback, so profiles are of labelled "
        "inputs; leave --samples out",
    )


def test_a_serving_session_accepts_looser_and_tighter_objectives(world: Planned) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms", accuracy="0.9")
    world.command(8.0, "set-session-slo", session="a", slo="400ms")
    world.command(10.0, "set-session-slo", session="a", accuracy="0.65")
    world.command(17.0, "set-session-slo", session="a", slo="1ms")
    world.ask("a", 7.0, 24.0)
    world.system.run(9.0)
    kept = world.session("a")
    assert (kept.slo_s, kept.replans, kept.state) == (0.4, 0, SessionState.SERVING)
    assert [each.slo_s for each in world.plan().sessions if each.admits] == [0.4]
    world.system.run(16.0)
    cheaper = world.session("a")
    assert cheaper.cause == "a command: its new objectives allow cheaper plans"
    assert (cheaper.state, cheaper.replans) == (SessionState.SERVING, 1)
    assert cheaper.plans[cheaper.chosen].usd_per_h <= kept.plans[kept.chosen].usd_per_h
    answered = [each for each in world.answers("a") if each.created_s < 16.9]
    assert {each.outcome for each in answered} <= {"answered", "failed"}  # a toy may fail
    world.system.run(30.0)
    last = world.session("a")
    assert last.cause == "a command: none of its plans meets its new objectives"
    assert last.state is SessionState.SERVING  # by the plan that it had
    assert "no plan meets its objectives" in last.reason


def test_new_objectives_begin_a_search_anew() -> None:
    world = Planned(seconds=0.02)
    world.command(1.0, "open-session", session="a", slo="60ms", accuracy="0.99")
    world.command(4.0, "set-session-slo", session="a", slo="500ms", accuracy="0.55")
    world.system.run(3.9)
    assert world.session("a").state is SessionState.SEARCHING
    world.system.run(6.0)
    session = world.session("a")
    assert session.state is SessionState.SERVING
    assert (session.plans[session.chosen].accuracy or 0.0) >= 0.55


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"session": "a"}, "names no objective"),
        ({"session": "b", "slo": "1s"}, "there is no session 'b'"),
        ({"session": "a", "slo": "0s"}, "it must be above 0"),
        ({"session": "a", "accuracy": "2"}, "write a number from 0 to 1"),
        ({"session": "a", "weight": "2"}, "it takes accuracy, cost, session, slo"),
    ],
)
def test_odd_objectives_are_refused_in_a_sentence(
    world: Planned, arguments: dict[str, str], message: str
) -> None:
    world.command(1.0, "open-session", session="a", slo="500ms")
    world.command(5.0, "set-session-slo", **arguments)
    world.system.run(8.0)
    result = world.results()["set-session-slo"]
    assert not result.ok
    assert message in result.message
    assert world.session("a").slo_s == 0.5

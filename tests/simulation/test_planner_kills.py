"""The control app is killed between any two of its writes, and no session notices, in virtual
time."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from schemas.effects import (
    COMMAND_RESULTS,
    COMMANDS,
    PLANS,
    PROFILE_REQUESTS,
    PROFILE_RESULTS,
    SESSIONS,
    Arrived,
    Effect,
    Event,
    Forget,
    Send,
)
from schemas.records import Command, CommandResult, Record, Session
from tests.simulation.test_session_adaptation import PAYLOAD, STEADY, Adapting, by_variant

WRITES = (PLANS, SESSIONS, COMMAND_RESULTS, PROFILE_REQUESTS)
AWAY_S = 7.0  # the group replaces a killed app after six seconds
ASKED, QPS = (9.0, 24.0), 20.0  # of session a
NEVER = -1


class Write(NamedTuple):
    """A record that a control app has written; None: a deletion."""

    topic: str
    key: str
    record: Record | None


class KilledWorld(Adapting):
    """Sessions are opened, replanned and closed; ``written`` outlives the control apps.

    The first control app is killed after ``writes``, the next one ``again`` writes later.
    """

    def __init__(self, writes: int, again: int = NEVER) -> None:
        super().__init__(STEADY, by_variant(0.4, 0.96))
        self.written: list[Write] = []
        self.commands: list[tuple[float, Command]] = []
        self.kills = [again, writes]
        self.begin()
        for at_s, action, name, objectives in (
            (1.0, "open-session", "a", {"slo": "200ms"}),
            (1.1, "open-session", "b", {"slo": "200ms"}),
            (1.2, "open-session", "d", {"slo": "200ms"}),
            (1.3, "close-session", "d", {}),  # it has no plan yet, and is deleted at once
            (7.0, "open-session", "c", {"slo": "300ms", "accuracy": "0.8"}),
            (9.0, "close-session", "c", {}),
            (22.0, "replan-session", "b", {}),
            (25.0, "close-session", "a", {}),
        ):
            arguments = {"session": name, **objectives}
            command = Command(
                id=f"{action}-{name}", pipeline="p", action=action, arguments=arguments,
                issued_s=at_s,
            )  # fmt: skip
            self.commands.append((at_s, command))
            self.system.input(at_s, COMMANDS, 0, command)
        self.ask("a", *ASKED, qps=QPS, payload=PAYLOAD)
        self.system.run(50.0)

    def begin(self) -> None:
        """Start a control app, in place of one that is gone."""
        left = self.kills.pop() if self.kills else NEVER
        self.system.start("control", KilledPlanner(self, left))

    def history(self, now: float) -> Iterator[Arrived]:
        """Yield what a control app reads before its first event, as its drivers do."""
        newest = {(topic, key): at for at, (topic, key, _) in enumerate(self.written)}
        for topic in (PLANS, COMMAND_RESULTS, SESSIONS):
            for at, (of, key, record) in enumerate(self.written):
                if of == topic and record is not None and newest[of, key] == at:
                    yield Arrived(record, topic, 0, at, now)
        for at, record in enumerate(self.records(PROFILE_RESULTS)):
            yield Arrived(record, PROFILE_RESULTS, 0, at, now)
        for at_s, command in self.commands:
            if at_s <= now:
                yield Arrived(command, COMMANDS, 0, 0, at_s)

    def end(self) -> dict[str, Any]:
        """Return what the user sees at the end, and what the profilers have run."""
        records = {each.key: each.record for each in self.written if each.topic == SESSIONS}
        results = Counter(
            (x.action, x.ok, x.message) for _, _, x in self.written if isinstance(x, CommandResult)
        )
        return {
            "sessions": {name: shown(each) for name, each in sorted(records.items())},
            "results": results,
            "plans": {(each.session, each.admits) for each in self.plan().sessions},
            "run": Counter((without_time(name), first) for name, first in self.profilers.run),
            "answers": len(self.answers("a")),
        }


class KilledPlanner:
    """A control app that ends after ``left`` writes; effects behind the last one are lost."""

    def __init__(self, world: KilledWorld, left: int) -> None:
        self._world, self._left = world, left
        self._controller = world.controller()
        self._began = self._dead = False

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self._dead:
            return []
        if not self._began:
            self._began = True
            for past in self._world.history(now):
                self._controller.handle(past, now)
        return self._performed(self._controller.handle(event, now), now)

    def _performed(self, effects: Sequence[Effect], now: float) -> list[Effect]:
        done: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Send | Forget) and effect.topic in WRITES:
                if self._left == 0:
                    self._dead = True
                    self._world.system.at(now + AWAY_S, self._world.begin)
                    break
                self._left -= 1
                record = effect.record if isinstance(effect, Send) else None
                self._world.written.append(Write(effect.topic, effect.key, record))
            done.append(effect)
        return done


def without_time(configuration: str) -> str:
    """Return a configuration on samples without the time of the samples, which a kill before the
    alarm changes."""
    samples, _, options = configuration.partition(" ")
    return f"{samples.partition('@')[0]} {options}"


def shown(session: Record | None) -> tuple[Any, ...]:
    """Return what a user sees of a session; () once it is deleted."""
    if not isinstance(session, Session):
        return ()
    plan = session.plans[session.chosen]
    samples = session.samples.partition("@")[0]
    return session.state, plan.settings, plan.tiers, session.replans, session.stopped, samples


@pytest.fixture(scope="module")
def undisturbed() -> KilledWorld:
    return KilledWorld(NEVER)


def check(world: KilledWorld, undisturbed: KilledWorld) -> None:
    """Check that sessions, results and answers are those of a run without kills, and that the
    profilers have run each block once, and no other."""
    end, wanted = world.end(), undisturbed.end()
    run = end.pop("run")
    assert run <= wanted.pop("run")
    assert end == wanted


def test_the_control_app_is_killed_around_each_kind_of_write(undisturbed: KilledWorld) -> None:
    topics = [each.topic for each in undisturbed.written]
    assert set(topics) == set(WRITES)
    for topic in (SESSIONS, COMMAND_RESULTS):
        check(KilledWorld(topics.index(topic)), undisturbed)


def test_a_session_is_deleted_only_after_the_result_of_the_command_that_closed_it(
    undisturbed: KilledWorld,
) -> None:
    """Its command was refused after a kill between the two: "there is no session 'd'"."""
    keys = [each.key for each in undisturbed.written]
    check(KilledWorld(keys.index("p/close-session-d")), undisturbed)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_the_control_app_is_killed_between_any_two_writes(undisturbed: KilledWorld) -> None:
    for writes in range(len(undisturbed.written)):
        check(KilledWorld(writes), undisturbed)


@pytest.mark.thorough
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("again", [0, 1, 3])
def test_the_control_app_is_killed_twice_in_a_row(undisturbed: KilledWorld, again: int) -> None:
    for writes in range(1, len(undisturbed.written), 4):
        check(KilledWorld(writes, again), undisturbed)

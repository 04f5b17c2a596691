"""The phases of a session, each brought about and recognised by the records on the topics, and the
faults that hit roles in them.

A phase opens the session that it is named for, and returns once the phase is reached. A fault kills
or freezes roles, and restarts what it has killed as ``headrace up`` does.
"""

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

import psutil

from benchmarks.rig import Stuck
from benchmarks.session_faults.session_pipeline import DRIFTS, EASY, HARD, sample_of
from benchmarks.session_faults.session_rig import TAKES_REQUESTS, SessionRig
from headrace.cluster.supervisor import pause_s
from schemas.enumerations import SessionState
from schemas.records import Command
from streams.control_app.control_driver import READY

CONTROL, STANDBY = "control", "control-2"
PROFILERS = ("profiler-0", "profiler-1")
IN_CHARGE = "in charge of pipeline"
PLANNED_WITHIN_S = 90.0  # a control app that is killed is replaced after 6 s, and then starts
_seeds = count(1)

Act = Callable[["Play"], None]


@dataclass(slots=True)
class Play:
    """One scenario on a rig: the session of its phase and the sample set that is profiled for it.
    ``hits``: how often a profiler was killed or frozen; ``freezes``: how often it was frozen."""

    rig: SessionRig
    session: str
    samples: str
    hits: int = 0
    freezes: int = 0
    ordered: Command | None = None  # on its topic, and not taken yet

    def order(self, action: str, **arguments: str) -> None:
        """Send a command on the scenario's session, for whose result ``until_done`` waits."""
        self.ordered = self.rig.order(action, session=self.session, **arguments)

    def until_done(self) -> None:
        """Wait for the result of the ordered command, if there is one."""
        if self.ordered is not None:
            result = self.rig.result_of(self.ordered)
            if not result.ok:
                raise Stuck(f"{result.action} of {self.session} was refused: {result.message}")

    def open(self, session: str = "", samples: str = "", **objectives: str) -> None:
        """Open a session, by default that of the scenario, and send queries to it."""
        name = session or self.session
        asked = {"session": name, "samples": samples or self.samples, **objectives}
        result = self.rig.command("open-session", **asked)
        if not result.ok:
            raise Stuck(f"{name} was not opened: {result.message}")
        self.rig.streams.append(name)

    def close(self, *sessions: str) -> None:
        """Close sessions, to which queries are no longer sent, and wait until they are gone."""
        for session in sessions:
            self.rig.streams.remove(session)
        orders = [self.rig.order("close-session", session=session) for session in sessions]
        for session, result in zip(sessions, map(self.rig.result_of, orders), strict=True):
            if not result.ok:
                raise Stuck(f"{session} was not closed: {result.message}")
        self.until(lambda: self.rig.sessions.keys().isdisjoint(sessions), "closed ones to be gone")

    def by_one_vote(self) -> bool:
        """Return whether queries are admitted by a plan with one vote."""
        plan = self.rig.admitted(self.session)
        return plan is not None and plan.stage("read").setting.endswith("votes=1")

    def until(self, holds: Callable[[], object], what: str) -> None:
        self.rig.until(holds, f"{self.session}: {what}", PLANNED_WITHIN_S)


def play_of(rig: SessionRig, prefix: str = "s") -> Play:
    """Return a scenario with a session and a set of easy samples of its own."""
    samples = samples_of(EASY)
    return Play(rig, f"{prefix}{samples.partition('@')[2]}", samples)


def samples_of(letter: str) -> str:
    """Return a new sample set of easy or of hard letters."""
    sets = (f"workload@{seed}" for seed in _seeds)
    return next(each for each in sets if sample_of(each, 0).startswith(letter))


# ---------------------------------------------------------------------- phases


def before_the_first_request(play: Play) -> None:
    """The command is on its topic; the control app, frozen, has not taken it."""
    play.rig.freeze(CONTROL)
    play.order("open-session", samples=play.samples)
    play.rig.streams.append(play.session)


def between_request_and_result(play: Play) -> None:
    """A profiler runs the first samples of the session's set."""
    play.open()
    play.until(lambda: play.rig.unanswered(play.samples), "a request")
    play.until(play.rig.at_work, "a profiler at work")


def result_not_yet_read(play: Play) -> None:
    """Results are on their topic, of all blocks in flight; the control app, frozen, has not read
    them."""
    between_request_and_result(play)
    play.rig.freeze(CONTROL)
    known = len(play.rig.profiles)
    play.until(
        lambda: len(play.rig.profiles) > known and not play.rig.unanswered(play.samples), "results"
    )


def search_waits(play: Play) -> None:
    """Two sessions have the profilers; a third one, with other samples, waits."""
    for _ in PROFILERS:
        other = play_of(play.rig, "other")
        play.open(other.session, other.samples)
    play.open()
    play.until(lambda: play.rig.state(play.session) is SessionState.OPENING, "its record")


def planned_not_switched(play: Play) -> None:
    """Workers load the settings of the session's first plan: its samples are hard, so that it needs
    three votes, which the plan of no other session has."""
    play.samples = samples_of(HARD)
    play.open()
    rig = play.rig
    play.until(
        lambda: (
            rig.state(play.session) is SessionState.WAITING
            and any(each.session == play.session for each in rig.plan.sessions)
            and rig.admitted(play.session) is None
        ),
        "a plan that loads",
    )


def replanning_after_a_drift(play: Play) -> None:
    """The session's data have changed, and the search for another plan runs on its inputs."""
    play.session = f"{DRIFTS}-{play.session}"
    play.open()
    play.until(lambda: play.rig.served(play.session), "to serve")
    if not play.by_one_vote():  # a search that stopped early; three votes read hard letters, too
        play.order("replan-session")
        play.until_done()
        play.until(
            lambda: play.rig.served(play.session) and play.by_one_vote(), "to serve by one vote"
        )
    play.rig.pass_time(2.0)
    play.rig.hard = True

    def samples() -> str:
        return play.rig.sessions[play.session].samples

    play.until(
        lambda: samples() != play.samples and play.rig.unanswered(samples()), "to be replanned"
    )
    play.samples = samples()


def closing(play: Play) -> None:
    """The command to close the session is on its topic; the control app has not taken it."""
    play.open()
    play.until(lambda: play.rig.served(play.session), "to serve")
    play.rig.freeze(CONTROL)
    play.rig.streams.remove(play.session)
    play.order("close-session")


PHASES: Mapping[str, Act] = {
    "before the first request": before_the_first_request,
    "between request and result": between_request_and_result,
    "with a result not yet read": result_not_yet_read,
    "while a search waits": search_waits,
    "planned and not switched": planned_not_switched,
    "replanning after a drift": replanning_after_a_drift,
    "closing": closing,
}


# ---------------------------------------------------------------------- faults


def _killed(play: Play, *names: str) -> None:
    for name in names:
        play.rig.kill(name)
    play.hits += sum(name in PROFILERS for name in names)
    play.rig.pass_time(pause_s(1))
    play.rig.start(*names)


def _busy_profiler(play: Play) -> str:
    """Return the profiler at work, or any if none is."""
    return play.rig.at_work() or PROFILERS[0]


def _thawed(play: Play) -> None:
    if CONTROL in play.rig.frozen:
        play.rig.thaw(CONTROL)


def kill_planner(play: Play) -> None:
    _killed(play, CONTROL)


def kill_profiler(play: Play) -> None:
    _killed(play, _busy_profiler(play))
    _thawed(play)


def kill_both(play: Play) -> None:
    _killed(play, CONTROL, _busy_profiler(play))


def kill_all(play: Play) -> None:
    _killed(play, CONTROL, *PROFILERS)


def kill_planner_twice(play: Play) -> None:
    """The second kill comes as soon as the new control app is in charge."""
    _killed(play, CONTROL)
    play.until(lambda: play.rig.said(CONTROL, IN_CHARGE), "a control app in charge")
    _killed(play, CONTROL)


def kill_profiler_twice(play: Play) -> None:
    """The second kill comes as soon as the same profiler runs other blocks: a block that ended its
    process twice is given up."""
    busy, rig = _busy_profiler(play), play.rig
    hit = rig.unanswered(play.samples)
    _killed(play, busy)

    def at_others() -> bool:
        return rig.at_work() == busy and not any(x in hit for x in rig.unanswered(play.samples))

    play.until(lambda: at_others() or _over(play), f"{busy} at work again")
    _killed(play, busy)


def _over(play: Play) -> bool:
    return play.rig.said(PROFILERS[0], TAKES_REQUESTS) and play.rig.served(play.session)


def freeze_profiler(play: Play) -> None:
    """Freeze the profiler at work until another one has answered all of its requests."""
    busy = _busy_profiler(play)
    play.rig.freeze(busy)
    play.hits, play.freezes = play.hits + 1, play.freezes + 1
    play.until(lambda: play.rig.served(play.session), "to serve without the frozen profiler")
    play.rig.thaw(busy)
    play.rig.pass_time(3.0)


def freeze_planner(play: Play) -> None:
    """Freeze the control app until its standby has planned the session; it then goes on."""
    _standby(play)
    play.rig.freeze(CONTROL)
    play.until(lambda: play.rig.served(play.session), "to serve by the standby's plan")
    play.rig.thaw(CONTROL)
    play.rig.pass_time(3.0)
    _without_standby(play)


def duplicate_planner(play: Play) -> None:
    """Start a second control app and kill the first one."""
    _standby(play)
    play.rig.kill(CONTROL)
    play.until(lambda: play.rig.served(play.session), "to serve by the second one's plan")
    play.rig.start(CONTROL)
    play.until(lambda: play.rig.said(CONTROL, READY), "the first one to stand by")
    _without_standby(play)


def _standby(play: Play) -> None:
    play.rig.start(STANDBY)
    play.until(lambda: play.rig.said(STANDBY, READY), "a second control app")


def _without_standby(play: Play) -> None:
    if play.rig.stop(STANDBY) != 0:
        raise Stuck("the second control app did not end well")


def kill_worker(play: Play) -> None:
    """Kill the device of the second task in the session's newest plan."""
    plans = [each for each in play.rig.plan.sessions if each.session == play.session]
    newest = max(plans, key=lambda each: each.number)
    _killed(play, newest.stage("read").device)


def kill_solver(play: Play) -> None:
    """Kill the process in which the control app searches."""
    for each in psutil.Process(play.rig.pids[CONTROL]).children(recursive=True):
        if "spawn_main" in " ".join(each.cmdline()):
            os.kill(each.pid, signal.SIGKILL)


FAULTS: Mapping[str, Act] = {
    "kill planner": kill_planner,
    "kill profiler": kill_profiler,
    "kill both": kill_both,
    "kill all": kill_all,
    "kill planner twice": kill_planner_twice,
    "kill profiler twice": kill_profiler_twice,
    "freeze profiler": freeze_profiler,
    "freeze planner": freeze_planner,
    "duplicate planner": duplicate_planner,
    "kill solver": kill_solver,
    "kill worker": kill_worker,
}
_EACH = ("kill planner", "kill profiler", "kill both")
_SEARCHING = "between request and result"
SCENARIOS: tuple[tuple[str, str], ...] = (
    *((phase, fault) for phase in PHASES for fault in _EACH),
    *((_SEARCHING, fault) for fault in FAULTS if fault not in (*_EACH, "kill worker")),
    ("planned and not switched", "freeze planner"),
    ("planned and not switched", "kill planner twice"),
    ("planned and not switched", "kill worker"),
    ("replanning after a drift", "kill all"),
    ("replanning after a drift", "freeze profiler"),
    ("replanning after a drift", "kill solver"),
    ("replanning after a drift", "kill worker"),
)

"""Kill and freeze planner and profilers in each phase of a session, then check all records.

    python -m benchmarks.session_faults [--only "kill both"] [--rate 10] [--bootstrap ADDRESS]
                                        [--json]

A pipeline with sessions, emulated operators and two profilers runs on its own broker, with one
process per role. A session serves all the time. In each scenario another one is opened, a fault
hits as the session is in one phase (``session_phases.py``), and the session is closed once it
serves. At the end the promises are checked over all records (``session_account.py``): every open
session is planned, no finished profile is lost or run again, no query is unanswered or answered
twice. Last (``--only "lost worker"``), a device is killed whose session, of an SLO of half a
second, has another one: its SLO is to hold again within ``BACK_WITHIN_S``. If a promise is broken,
it is printed, and the exit code is 1.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import PROPERTIES, say
from benchmarks.chaos_account import Record
from benchmarks.machine_speed import machine_line
from benchmarks.received_answers import ends, recovered_s
from benchmarks.rig import Rig, Stuck
from benchmarks.session_faults.session_account import SessionRecord, broken_promises
from benchmarks.session_faults.session_phases import (
    FAULTS,
    PHASES,
    SCENARIOS,
    STANDBY,
    Play,
    play_of,
)
from benchmarks.session_faults.session_pipeline import DESCRIPTION
from benchmarks.session_faults.session_rig import SessionRig
from headrace.broker import local_broker as local
from headrace.config.topology import Role

STEADY, QUICK, QUICK_SLO = "steady", "quick", "500ms"
LOST_WORKER = "lost worker"
RATE = 10.0  # queries/s
BACK_WITHIN_S = 1.0
LOSSES = 5  # of a worker
SETTLES_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A scenario that was played: ``whole_s`` from its fault until its session is planned (or
    gone), ``outcomes`` of the queries of that time."""

    phase: str
    fault: str
    whole_s: float
    outcomes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFaults:
    """The result of a run. ``back_s``: after each loss of a worker, when the last query was made
    that was not answered in time."""

    queries: int
    outcomes: str
    blocks: int
    met: Sequence[Met]
    back_s: Sequence[float]
    broken: Sequence[str]


@dataclass(slots=True)
class Plays:
    """The scenarios played so far; ``hits`` and ``freezes`` are those of profilers."""

    met: list[Met] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    hits: int = 0
    freezes: int = 0
    stuck: str = ""  # why the run ended early


def measure(
    folder: Path, only: str = "", rate: float = RATE, bootstrap: str = "", *, bounded: bool = True
) -> SessionFaults:
    """Play the scenarios whose names contain ``only``, on a broker of their own unless one is
    given; print progress to standard error.

    ``bounded``: an SLO that holds again later than ``BACK_WITHIN_S`` is a broken promise.
    """
    with a_rig(folder, bootstrap) as rig:
        found = Plays()
        try:
            _play(rig, found, only, rate)
        except Stuck as stuck:
            found.stuck = str(stuck)
            rig.offer(0)
            rig.give_up()
            with suppress(Stuck):
                rig.until(lambda: not rig.waiting, "the last answers")
        record = _record(rig, found)
    wrong = [f"every session recovers: {found.stuck}"] if found.stuck else []
    wrong += broken_promises(record)
    wrong += [f"a lost worker costs {BACK_WITHIN_S:g} s: {s:.2f} s" for s in found.back_s
              if bounded and s > BACK_WITHIN_S]  # fmt: skip
    return SessionFaults(
        queries=len(rig.asked), outcomes=ends(rig.answers), blocks=len(rig.profiles),
        met=found.met, back_s=found.back_s, broken=wrong,
    )  # fmt: skip


def _play(rig: SessionRig, found: Plays, only: str, rate: float) -> None:
    say(f"up after {_up(rig):.1f} s")
    steady = play_of(rig)
    steady.open(STEADY)
    steady.until(lambda: rig.served(STEADY), "to serve")
    rig.offer(rate)
    for phase, fault in SCENARIOS:
        if only in f"{phase}: {fault}":
            met, play = _met(rig, phase, fault)
            found.met.append(met)
            found.hits, found.freezes = found.hits + play.hits, found.freezes + play.freezes
    if only in LOST_WORKER:
        steady.open(QUICK, slo=QUICK_SLO)
        steady.until(lambda: rig.served(QUICK), "the quick session to serve")
        rig.streams.remove(STEADY)
        found.back_s += [_lost_worker(rig) for _ in range(LOSSES)]
        rig.streams.append(STEADY)
    _settle(rig)


@contextmanager
def a_rig(folder: Path, bootstrap: str = "") -> Iterator[SessionRig]:
    """Yield the pipeline, on its own broker without ``bootstrap``; both end with the block."""
    with ExitStack() as stack:
        if not bootstrap:
            home = folder / "broker"
            bootstrap = local.start(home).bootstrap
            stack.callback(local.stop, home)
        rig = SessionRig(bootstrap, folder, DESCRIPTION, properties=dict(PROPERTIES))
        stack.callback(rig.close)
        yield rig


def _up(rig: Rig) -> float:
    seconds = rig.up()
    rig.roles[STANDBY] = Role(STANDBY, "control")
    return seconds


def _met(rig: SessionRig, phase: str, fault: str) -> tuple[Met, Play]:
    """Play a scenario; return it, and its counts."""
    say(f"{phase}: {fault}")
    play, began_s = play_of(rig), time.time()
    try:
        PHASES[phase](play)
        hit_s = time.time()
        FAULTS[fault](play)
        play.until_done()
        closes = play.session not in rig.streams
        play.until(
            lambda: rig.state(play.session) is None if closes else rig.served(play.session),
            "to be gone" if closes else "to serve",
        )
        whole_s = time.time() - hit_s
        for name in [name for name in rig.streams if name != STEADY]:
            play.until(lambda name=name: rig.served(name), f"{name} to serve")  # type: ignore[misc]
            play.close(name)
        rig.hard = False
        play.until(rig.serves, "every role to be back")
    except Stuck as stuck:
        raise Stuck(f"{phase}: {fault}: {stuck}") from None
    outcomes = ends(rig.answers.since(began_s))
    say(f"    planned {whole_s:.1f} s after; {outcomes}")
    return Met(phase=phase, fault=fault, whole_s=round(whole_s, 2), outcomes=outcomes), play


def _lost_worker(rig: SessionRig) -> float:
    """Kill the device of the quick session's second task; return when its SLO held again."""
    plan = rig.admitted(QUICK)
    assert plan is not None
    device = plan.stage("read").device
    rig.pass_time(1.0)
    at_s = rig.kill(device)
    rig.pass_time(SETTLES_S)
    rig.start(device)
    rig.until(rig.serves, f"{device} to be back")
    found = recovered_s(rig.answers.since(at_s), at_s)
    say(f"lost {device}: the SLO held again after {found:.2f} s; {ends(rig.answers.since(at_s))}")
    return round(found, 3)


def _settle(rig: Rig) -> None:
    rig.offer(0)
    rig.until(lambda: not rig.waiting, "the last answers")
    rig.pass_time(1)


def _record(rig: SessionRig, found: Plays) -> SessionRecord:
    queries = Record(
        asked=rig.asked, answers=rig.answers, plans=rig.plans, followed=rig.reports.epochs,
        results=rig.results, readers=rig.reports.slot_readers,
    )  # fmt: skip
    return SessionRecord(
        queries=queries, open=rig.streams, written=rig.written, requests=rig.requests,
        profiles=rig.profiles, runs=[each for each in rig.runs if each.pid in rig.profilers],
        hit=found.hits, frozen=found.freezes, asked_of=rig.asked_of,
    )  # fmt: skip


def as_json(found: SessionFaults) -> dict[str, Any]:
    """Return the result as JSON values."""
    return {**asdict(found), "ok": not found.broken, "machine": machine_line()}


def text(found: SessionFaults) -> str:
    """Return the result as text."""
    lines = [f"{found.queries} queries: {found.outcomes}; {found.blocks} results of profilers"]
    lines += [f"{m.phase:<28} {m.fault:<20} {m.whole_s:>6.1f} s" for m in found.met]
    lines += [f"the SLO held again {', '.join(f'{s:.2f}' for s in found.back_s)} s after the loss "
              "of a worker"] if found.back_s else []  # fmt: skip
    lines += [f"broken: {what}" for what in found.broken] or ["every promise holds"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 and keep the logs if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="scenarios whose `PHASE: FAULT` contains this")
    parser.add_argument("--rate", type=float, default=RATE, help="queries/s")
    parser.add_argument("--bootstrap", default="", help="a broker that runs already")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # end the roles, too
    folder = Path(tempfile.mkdtemp(prefix="headrace-session-faults-"))
    say(machine_line())
    found = measure(folder, asked.only, asked.rate, asked.bootstrap)
    print(json.dumps(as_json(found)) if asked.json else text(found))
    if found.broken:
        say(f"logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

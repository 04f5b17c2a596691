"""Kill and freeze planner and profilers in each phase of a session, then check all records.

    python -m benchmarks.session_faults [--only "kill both"] [--rows FILE] [--rate 10]
                                        [--bootstrap ADDRESS] [--json]

A pipeline with sessions, emulated operators and two profilers runs on its own broker, with one
process per role. A session serves all the time. In each scenario another one is opened, a fault
hits as the session is in one phase (``session_phases.py``), and the session is closed once it
serves. At the end the promises are checked over all records (``session_account.py``): every open
session is planned, no finished profile is lost or run again, no query is unanswered or answered
twice. Last (``--only "lost worker"``), a device is killed whose session, of an SLO of half a
second, has another one: its SLO is to hold again within ``BACK_WITHIN_S``. If a promise is broken,
it is printed, and the exit code is 1.

A scenario that does not recover is a broken promise; the others go on with a new pipeline. With
``--rows``, every scenario that ended is a line of that file, and a later run omits it. ``SIGINT``
and ``SIGTERM`` end the run after a check of the records so far.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.chaos import PROPERTIES, say
from benchmarks.chaos_account import Record
from benchmarks.machine_speed import machine_line
from benchmarks.received_answers import ends, recovered_s
from benchmarks.rig import Rig, Stuck
from benchmarks.row_file import RowFile
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
from schemas.records import Answer

STEADY, QUICK, QUICK_SLO = "steady", "quick", "500ms"
LOST_WORKER = ("serving", "lost worker")
EVERY = (*SCENARIOS, LOST_WORKER)
RATE = 10.0  # queries/s
BACK_WITHIN_S = 1.0
LOSSES = 5  # of a worker
SETTLES_S = 5.0
USUAL_S = 13.0  # of a scenario with its end, on a quiet machine of two cores

Scenario = tuple[str, str]  # its phase and its fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """A scenario that was played: ``whole_s`` from its fault until its session is planned (or
    gone), ``outcomes`` of the queries of that time. ``back_s``: after each loss of a worker, when
    the last query was made that was not answered in time."""

    phase: str
    fault: str
    whole_s: float
    outcomes: str
    back_s: Sequence[float] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFaults:
    """The result of a run."""

    queries: int
    outcomes: str
    blocks: int
    met: Sequence[Met]
    broken: Sequence[str]


@dataclass(slots=True)
class Played:
    """The scenarios of one pipeline: how many began, and those that ended. ``hits`` and ``freezes``
    are those of profilers; ``stuck`` says why the last one did not end."""

    begun: int = 0
    met: list[Met] = field(default_factory=list)
    hits: int = 0
    freezes: int = 0
    stuck: str = ""
    interrupted: bool = False
    queries: int = 0
    answers: list[Answer] = field(default_factory=list)
    blocks: int = 0
    broken: list[str] = field(default_factory=list)


def measure(
    folder: Path,
    only: str = "",
    rate: float = RATE,
    bootstrap: str = "",
    rows: RowFile[Met] | None = None,
    *,
    bounded: bool = True,
) -> SessionFaults:
    """Play the scenarios whose names contain ``only`` and that are not among the ``rows``, on a
    broker of their own unless one is given; print progress to standard error.

    ``bounded``: an SLO that holds again later than ``BACK_WITHIN_S`` is a broken promise.
    """
    known = rows.read() if rows is not None else []
    left = remaining(only, known)
    say(f"{len(left)} scenarios of about {USUAL_S:g} s: {len(left) * USUAL_S / 60:.0f} minutes")
    parts: list[Played] = []
    with a_broker(folder, bootstrap) as address:
        while left and not (parts and (parts[-1].interrupted or not parts[-1].begun)):
            home = folder / str(len(parts))
            home.mkdir()
            parts.append(_part(home, address, left, rate, rows))
            left = left[parts[-1].begun :]
    met = [*known, *(met for part in parts for met in part.met)]
    broken = [what for part in parts for what in part.broken]
    if left:
        broken.append(f"every scenario is played: {len(left)} were not")
    slow = [s for each in met for s in each.back_s if bounded and s > BACK_WITHIN_S]
    return SessionFaults(
        queries=sum(part.queries for part in parts),
        outcomes=ends([answer for part in parts for answer in part.answers]),
        blocks=sum(part.blocks for part in parts),
        met=met,
        broken=[*broken, *(f"a lost worker costs {BACK_WITHIN_S:g} s: {s:.2f} s" for s in slow)],
    )


def remaining(only: str, ended: Sequence[Met]) -> list[Scenario]:
    """Return the scenarios whose names contain ``only`` and that have not ended."""
    known = {(each.phase, each.fault) for each in ended}
    return [each for each in EVERY if only in _named(each) and each not in known]


def _named(scenario: Scenario) -> str:
    return ": ".join(scenario)


def _part(
    folder: Path, bootstrap: str, left: Sequence[Scenario], rate: float, rows: RowFile[Met] | None
) -> Played:
    """Play scenarios on a new pipeline until one does not recover, and check all records."""
    found = Played()
    rig = SessionRig(bootstrap, folder, DESCRIPTION, properties=dict(PROPERTIES))
    try:
        try:
            _play(rig, found, left, rate, rows)
        except (Stuck, KeyboardInterrupt) as error:
            found.interrupted = isinstance(error, KeyboardInterrupt)
            found.stuck = "the run was interrupted" if found.interrupted else str(error)
            say(f"    {found.stuck}")
            rig.offer(0)
            rig.give_up()
            with suppress(Stuck):
                rig.until(lambda: not rig.waiting, "the last answers")
    finally:
        rig.close()
    found.queries, found.answers, found.blocks = len(rig.asked), rig.answers, len(rig.profiles)
    found.broken = [f"every session recovers: {found.stuck}"] if found.stuck else []
    found.broken += broken_promises(_record(rig, found))
    return found


def _play(
    rig: SessionRig,
    found: Played,
    left: Sequence[Scenario],
    rate: float,
    rows: RowFile[Met] | None,
) -> None:
    say(f"up after {_up(rig):.1f} s")
    steady = play_of(rig)
    steady.open(STEADY)
    steady.until(lambda: rig.served(STEADY), "to serve")
    rig.offer(rate)
    began_s = time.monotonic()
    for scenario in left:
        found.begun += 1
        say(f"{found.begun} of {len(left)}: {_named(scenario)}")
        met = _lost_workers(rig, steady) if scenario == LOST_WORKER else _met(rig, found, scenario)
        found.met.append(met)
        if rows is not None:
            rows.append(met)
        each_s = (time.monotonic() - began_s) / found.begun
        minutes = each_s * (len(left) - found.begun) / 60
        say(f"    planned {met.whole_s:.1f} s after; {met.outcomes}; {minutes:.1f} minutes left")
    _settle(rig)


@contextmanager
def a_broker(folder: Path, bootstrap: str = "") -> Iterator[str]:
    """Yield the address of a broker; without ``bootstrap`` of a new one, which ends with the
    block."""
    if bootstrap:
        yield bootstrap
        return
    home = folder / "broker"
    started = local.start(home)
    try:
        yield started.bootstrap
    finally:
        local.stop(home)


def _up(rig: Rig) -> float:
    seconds = rig.up()
    rig.roles[STANDBY] = Role(STANDBY, "control")
    return seconds


def _met(rig: SessionRig, found: Played, scenario: Scenario) -> Met:
    """Play a scenario and count the hits of its profilers."""
    phase, fault = scenario
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
        others = [name for name in rig.streams if name != STEADY]
        play.until(lambda: all(map(rig.served, others)), "every session to serve")
        play.close(*others)
        rig.hard = False
        play.until(rig.serves, "every role to be back")
    except Stuck as stuck:
        raise Stuck(f"{_named(scenario)}: {stuck}") from None
    finally:
        found.hits, found.freezes = found.hits + play.hits, found.freezes + play.freezes
    outcomes = ends(rig.answers.since(began_s))
    return Met(phase=phase, fault=fault, whole_s=round(whole_s, 2), outcomes=outcomes)


def _lost_workers(rig: SessionRig, steady: Play) -> Met:
    """Play ``LOSSES`` losses of a worker of a session with a short SLO, the only one with load."""
    began_s = time.time()
    steady.open(QUICK, slo=QUICK_SLO)
    steady.until(lambda: rig.served(QUICK), "the quick session to serve")
    rig.streams.remove(STEADY)
    back_s = [_lost_worker(rig) for _ in range(LOSSES)]
    rig.streams.append(STEADY)
    phase, fault = LOST_WORKER
    return Met(
        phase=phase, fault=fault, whole_s=max(back_s), outcomes=ends(rig.answers.since(began_s)),
        back_s=back_s,
    )  # fmt: skip


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
    say(f"    lost {device}: the SLO held again after {found:.2f} s")
    return round(found, 3)


def _settle(rig: Rig) -> None:
    rig.offer(0)
    rig.until(lambda: not rig.waiting, "the last answers")
    rig.pass_time(1)


def _record(rig: SessionRig, found: Played) -> SessionRecord:
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
    lines += [
        f"the SLO held again {', '.join(f'{s:.2f}' for s in m.back_s)} s after the loss of a worker"
        for m in found.met if m.back_s
    ]  # fmt: skip
    lines += [f"broken: {what}" for what in found.broken] or ["every promise holds"]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 and keep the logs if a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="scenarios whose `PHASE: FAULT` contains this")
    parser.add_argument("--rows", type=Path, help="a file of ended scenarios, which are omitted")
    parser.add_argument("--rate", type=float, default=RATE, help="queries/s")
    parser.add_argument("--bootstrap", default="", help="a broker that runs already")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as SIGINT does
    folder = Path(tempfile.mkdtemp(prefix="headrace-session-faults-"))
    say(machine_line())
    rows = None if asked.rows is None else RowFile(asked.rows, Met)
    found = measure(folder, asked.only, asked.rate, asked.bootstrap, rows)
    print(json.dumps(as_json(found)) if asked.json else text(found))
    if found.broken:
        say(f"logs are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

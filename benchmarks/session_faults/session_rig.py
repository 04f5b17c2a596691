"""A rig whose queries belong to sessions, and whose sessions and profiles are followed."""

import time
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message

from benchmarks.rig import Rig
from benchmarks.session_faults.session_pipeline import (
    DRIFTS,
    EASY,
    HARD,
    RUNS,
    SampleRun,
    runs_in,
    write_operators,
)
from headrace.client.topic_clients import decoded
from schemas.codec.single_object import encode
from schemas.effects import LABELS, PROFILE_REQUESTS, PROFILE_RESULTS, SESSIONS
from schemas.enumerations import SessionState
from schemas.records import Label, ProfileRequest, ProfileResult, Session, SessionPlan
from streams.topics import physical

Place = tuple[tuple[tuple[str, str], ...], str, int]  # options, sample set, first sample
Written = tuple[float, str, Session | None]  # time, session, its record (None: it was deleted)
TAKES_REQUESTS = "is ready for requests"  # logged by a profiler that has started
NEWEST_S = 0.3  # a profiler that has begun a sample since then is at work


@dataclass
class SessionRig(Rig):
    """A rig with sessions. ``streams`` are those that get queries in turn; ``written``,
    ``requests`` and ``profiles`` are the records of their topics, with times of writing."""

    streams: list[str] = field(default_factory=list)
    hard: bool = False  # whether the queries of sessions that drift are hard
    written: list[Written] = field(default_factory=list)
    requests: list[tuple[float, ProfileRequest]] = field(default_factory=list)
    profiles: list[tuple[float, ProfileResult]] = field(default_factory=list)
    runs: list[SampleRun] = field(default_factory=list)
    profilers: dict[int, str] = field(default_factory=dict)  # of every process ever started
    asked_of: dict[str, str] = field(default_factory=dict)  # query -> its session
    _partial: str = ""  # a line of the log of calls that is not whole yet

    def __post_init__(self) -> None:
        write_operators(self.folder)
        super().__post_init__()
        self._log_of_calls = (self.folder / RUNS).open()

    def close(self) -> None:
        super().close()
        self._log_of_calls.close()

    def _reads(self) -> dict[str, Any]:
        more = {SESSIONS: self._session, PROFILE_REQUESTS: self._wanted, PROFILE_RESULTS: self._ran}
        return {**super()._reads(), **more}

    def start(self, *names: str) -> None:
        super().start(*names)
        for name in names:
            if self.roles[name].kind == "profiler":
                self.profilers[self.pids[name]] = name

    def step(self) -> None:
        super().step()
        self._read_runs()

    # ------------------------------------------------------------------ records

    def _session(self, message: Message) -> None:
        record = decoded(message.value() or b"")
        found = record if isinstance(record, Session) else None
        self.written.append((_at_s(message), (message.key() or b"").decode(), found))

    def _wanted(self, message: Message) -> None:
        record = decoded(message.value() or b"")
        if isinstance(record, ProfileRequest):
            self.requests.append((_at_s(message), record))

    def _ran(self, message: Message) -> None:
        record = decoded(message.value() or b"")
        if isinstance(record, ProfileResult):
            self.profiles.append((_at_s(message), record))

    def _read_runs(self) -> None:
        text = self._partial + self._log_of_calls.read()
        whole, newline, self._partial = text.rpartition("\n")
        self.runs += runs_in((whole + newline).splitlines(keepends=True))

    # ------------------------------------------------------------------ queries

    def _ask_next(self, number: int) -> None:
        if not self.streams:
            return
        session = self.streams[number % len(self.streams)]
        letter = HARD if self.hard and session.startswith(DRIFTS) else EASY
        name = self.ask(f"{letter}{number:08d}".encode(), session=session)
        self.asked_of[name] = session
        if session.startswith(DRIFTS):
            label = Label(id=name, truth=letter)
            self._producer.produce(physical(self.name, LABELS), encode(label), name)

    # ------------------------------------------------------------------ states

    @property
    def frozen(self) -> frozenset[str]:
        """The roles that are suspended."""
        return frozenset(self._frozen)

    @property
    def sessions(self) -> dict[str, Session]:
        """The newest record of every session that is not deleted."""
        newest = {name: record for _, name, record in self.written}
        return {name: record for name, record in newest.items() if record is not None}

    def serves(self) -> bool:
        """Return whether every role that runs follows the newest plan or is ready for its work."""
        names = [name for name in self.running if name not in self._frozen]
        profilers = [name for name in names if self.roles[name].kind == "profiler"]
        return (
            bool(self.plans)
            and all(self._follows(name, self.plan) for name in names)
            and all(map(self._stands_by, names))
            and all(self.said(name, TAKES_REQUESTS) for name in profilers)
        )

    def state(self, name: str) -> SessionState | None:
        """Return the state of a session; None if it has no record."""
        found = self.sessions.get(name)
        return None if found is None else found.state

    def admitted(self, name: str) -> SessionPlan | None:
        """Return the query plan of a session that the newest plan admits queries by."""
        plans = self.plan.sessions if self.plans else ()
        return next((each for each in plans if each.session == name and each.admits), None)

    def served(self, name: str) -> bool:
        """Return whether a session serves by the newest plan, and its search is over."""
        found = self.sessions.get(name)
        return (
            found is not None
            and found.state is SessionState.SERVING
            and bool(found.stopped)
            and self.admitted(name) is not None
        )

    def unanswered(self, samples: str) -> list[ProfileRequest]:
        """Return the requests on a sample set without a result."""
        known = {place(each) for _, each in self.profiles}
        asked = [each for _, each in self.requests if each.sample_set == samples]
        return [each for each in asked if place(each) not in known]

    def at_work(self) -> str:
        """Return the profiler that runs a sample now; "" if there is none."""
        since_s = time.time() - NEWEST_S
        for run in reversed(self.runs[-50:]):
            role = self.profilers.get(run.pid)
            if run.at_s < since_s:
                break
            if role is not None and self.pids.get(role) == run.pid and role not in self._frozen:
                return role
        return ""

    def said(self, role: str, words: str) -> bool:
        """Return whether a role's present process has logged these words."""
        with self.log(role).open("rb") as log:
            log.seek(self._log_from[role])
            return words.encode() in log.read()


def place(record: ProfileRequest | ProfileResult) -> Place:
    """Return the block of samples of a configuration that a record is about."""
    return tuple(sorted(record.options.items())), record.sample_set, record.first


def _at_s(message: Message) -> float:
    return float(message.timestamp()[1]) / 1e3

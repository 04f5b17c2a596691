"""Detect a running node of the same name: two nodes of one name would each do all of the work.

Leases and the shares of ingress and egress are assigned by name: a second egress would answer
every query twice. So a role listens to the reports before it starts and for a while after, and
again after each silence of its own: another can have taken its name only while it was silent. The
last reports of a process that has ended do not count: a broker that delays requests by a quota may
append them after its end.
"""

import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeGuard

from headrace.client.topic_clients import Tail, decoded
from headrace.errors import NameTaken
from schemas.records import Report
from streams.fencing import Replaced
from streams.kafka.kafka_errors import BrokerError

LISTEN_S = 0.7  # nodes report every 0.2 s
PAUSE_S = 5.0
LEFT_BEHIND_S = 1.0  # a report not sent within this time expires (streams/kafka/kafka_client.py)
WATCH_S = 3.0  # two nodes that start at the same time receive each other's reports only then


class Namesakes:
    """Listens on a thread, from its creation, for reports of other nodes with these names."""

    def __init__(
        self,
        reports: Callable[[], Tail],
        pipeline: str,
        names: Collection[str],
        slower: float = 1.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``reports`` opens the reports topic at its end; it may raise ``BrokerError``. ``clock``
        is that of the nodes here."""
        self._pipeline, self._names = pipeline, frozenset(names)
        self._listen_s, self._watch_s = LISTEN_S * slower, WATCH_S * slower
        self._reports, self._clock = reports, clock
        self._mine = 0.0  # the incarnation of the nodes here, once they report
        self._tell: Callable[[BaseException], None] = self._keep
        self._error: BaseException | None = None
        self._oldest: Report | None = None  # of the other nodes' reports that were heard
        self._judging = threading.Lock()
        self._looking = False
        self._look_s = 0.0  # the earliest time of the next look, monotonic
        self._quiet = threading.Event()  # the first listening phase has ended, found or not
        threading.Thread(target=self._run, name="namesakes", daemon=True).start()

    def check(self) -> None:
        """Wait for ``LISTEN_S``, or longer until it is known whether the sender of a late report
        lives; raise ``NameTaken`` if another node of the name does."""
        self._quiet.wait()
        if self._error is not None:
            raise self._error
        if self._oldest is not None:
            raise _taken(self._oldest)

    def watch(self, incarnation: float, tell: Callable[[BaseException], None]) -> None:
        """Go on for ``WATCH_S``; call ``tell`` if an older node of the name reports, or has since
        ``check``."""
        with self._judging:
            self._mine, self._tell = incarnation, tell
            if self._error is not None:
                tell(self._error)
            self._judge()

    def look_again(self) -> None:
        """Listen for ``LISTEN_S`` on a thread of its own; ``tell`` a ``Replaced`` if another node
        of the name reports. Listen again while no broker answers, at most every ``PAUSE_S``."""
        if not self._looking:
            self._looking = True
            threading.Thread(target=self._look, name="namesakes", daemon=True).start()

    def _look(self) -> None:
        time.sleep(max(0.0, self._look_s - time.monotonic()))
        self._look_s = time.monotonic() + PAUSE_S
        self._looking = False  # a silence from here on needs another look
        try:
            with closing(self._reports()) as reports:
                self._find_successor(reports)
        except BrokerError:  # the broker is away again; the role waits for it, and so does the look
            self.look_again()
        except Exception as error:  # noqa: BLE001 - the role's thread raises it
            self._tell(error)

    def _find_successor(self, reports: Tail) -> None:
        others, until_s = LivingOthers(self._clock()), time.monotonic() + self._listen_s
        while time.monotonic() < until_s:
            for record in self._of_others(reports):
                until_s = time.monotonic() + self._listen_s
                if others.lives(record):
                    self._tell(
                        Replaced(
                            f"another node named {record.node!r} of pipeline {self._pipeline} "
                            "reports: it took the place of this one, which was silent, so this "
                            "one ends"
                        )
                    )
                    return

    def _of_others(self, reports: Tail) -> list[Report]:
        """Return the next reports of other nodes with the names of the nodes here."""
        records = map(decoded, reports.take(0.1))
        return [r for r in records if is_other(r, self._pipeline, self._names, self._mine)]

    def _keep(self, error: BaseException) -> None:
        self._error = error

    def _run(self) -> None:
        try:
            with closing(self._reports()) as reports:
                self._listen(reports)
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self._keep(error)
        finally:
            self._quiet.set()

    def _listen(self, reports: Tail) -> None:
        others, quiet_s = LivingOthers(self._clock()), time.monotonic() + self._listen_s
        while (now := time.monotonic()) < quiet_s + self._watch_s:
            for report in self._of_others(reports):
                if not self._quiet.is_set():
                    quiet_s = now + self._listen_s  # its sender lives if more follow
                if others.lives(report):
                    with self._judging:
                        self._hear(report)
                    self._quiet.set()
            if now >= quiet_s:
                self._quiet.set()

    def _hear(self, report: Report) -> None:
        if self._oldest is None or report.incarnation < self._oldest.incarnation:
            self._oldest = report
            self._judge()

    def _judge(self) -> None:
        """Report the oldest other node if it is older than the nodes here, once these report."""
        if self._oldest is not None and self._oldest.incarnation < self._mine:
            self._tell(_taken(self._oldest))


@dataclass(slots=True)
class LivingOthers:
    """The reports of other nodes that were heard since ``began_s`` of this process' clock."""

    began_s: float
    _first_s: dict[tuple[str, float], float] = field(default_factory=dict)

    def lives(self, report: Report) -> bool:
        """Return whether a report shows that its sender lives.

        It does if it was sent since ``began_s``. The clock of the sender's host may be behind, so
        it also does if the sender's reports cover more time than an ended process leaves behind.
        """
        if report.sent_s >= self.began_s:
            return True
        sender = (report.node, report.incarnation)
        first_s = self._first_s.setdefault(sender, report.sent_s)
        return report.sent_s - first_s > LEFT_BEHIND_S


def is_other(
    record: object, pipeline: str, names: Collection[str], mine: float
) -> TypeGuard[Report]:
    """Return whether a record is a report of a node with one of the names and another incarnation
    than ``mine``.

    A node that took the place of a silent one may have the lower incarnation: clocks of hosts
    differ, and are set back.
    """
    if not isinstance(record, Report) or record.pipeline != pipeline:
        return False
    return record.node in names and record.incarnation != mine


def _taken(report: Report) -> NameTaken:
    return NameTaken(
        f"a node named {report.node!r} of pipeline {report.pipeline} reports already; two of "
        "one name would do all work twice: end the other, or give this one a name or share "
        "of its own (--name, --share)"
    )

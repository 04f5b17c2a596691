"""Journal: an observer that logs the notable events and effects of nodes.

Nodes do not log: the journal sees their events and effects. A line has a sentence, the name of its
event, ids and figures; ``headrace/roles/observability/log_format.py`` prints them.

Events of every query are logged at debug level. Under overload, events in bulk (drops, refusals)
are logged at info level: the first ``MOST`` of a kind in ``WINDOW_S``, then a count.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from control.controller.command_queue import COMMAND_VALID_S
from control.estimation.accuracy.accuracy_drift import drifted_paths
from operators.outcomes import cause_of, outcome_of
from schemas.effects import Arrived, Effect, Event, Infer, Inferred, Send, Solve, Solved
from schemas.records import (
    ANSWERED,
    Answer,
    Command,
    Lease,
    MeasuredAccuracy,
    Plan,
    Query,
    Report,
    Work,
)
from streams.observers.log_lines import (
    EFFECT_LINES,
    EVENT_LINES,
    LEVELS,
    LogLine,
    accuracy_drifted,
    accuracy_returned,
    followed,
)

log = logging.getLogger("headrace.node")

MOST = 20
WINDOW_S = 10.0
EVERY_QUERY = (Query, Work, Infer, Inferred, Solve, Solved)  # logged at debug level only
CROWDS = ("dead-letter", "job.failed", "query.")  # prefixes of events that occur in bulk


def tell(logger: logging.Logger, level: int, event: str, text: str, **fields: Any) -> None:
    """Log a line: the sentence, the name of the event, ids and figures."""
    logger.log(level, "%s", text, extra={"event": event, "fields": fields})


@dataclass(slots=True)
class _LineWindow:
    """The number of lines of a kind since ``began_s``, logged and omitted."""

    began_s: float
    logged: int = 0
    left_out: int = 0


class Journal:
    """Logs what a process's nodes do, at the level of ``log`` at construction."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._debug = log.isEnabledFor(logging.DEBUG)
        self._epochs: dict[str, int] = {}
        self._leases: dict[str, Lease | None] = {}
        self._regressions: dict[str, float] = {}
        self._drifted: frozenset[tuple[str, str]] = frozenset()  # path and shadows' path
        self._windows: dict[tuple[str, str, str], _LineWindow] = {}
        # Most events have no line and cost one look-up.
        self._by_event = self._writers(EVENT_LINES) | {
            Plan: self._plan, Command: self._command, Report: self._heard,
        }  # fmt: skip
        self._by_effect = self._writers(EFFECT_LINES) | {
            Answer: self._answer, MeasuredAccuracy: self._accuracy, Plan: self._made,
            Report: self._counts,
        }  # fmt: skip
        self.kinds = frozenset[type]((*self._by_event, *self._by_effect))

    def _writers(
        self, lines: dict[type, Callable[[Any], LogLine]]
    ) -> dict[type, Callable[[str, Any, float], None]]:
        def writer(line: Callable[[Any], LogLine]) -> Callable[[str, Any, float], None]:
            return lambda node, about, now: self._tell(node, line(about), now)

        kinds = [kind for kind in lines if self._debug or kind not in EVERY_QUERY]
        return {kind: writer(lines[kind]) for kind in kinds}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        kind: type = type(event)
        if kind is Arrived:
            kind = type(event.record)  # type: ignore[union-attr]
        write = self._by_event.get(kind)
        if write is not None:
            write(node, event, now)
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                kind = type(effect.record)  # type: ignore[union-attr]
            write = self._by_effect.get(kind)
            if write is not None:
                write(node, effect, now)

    # ------------------------------------------------------------------ stateful lines

    def _plan(self, node: str, event: Arrived, now: float) -> None:
        plan = event.record
        assert isinstance(plan, Plan)
        if plan.pipeline != self._pipeline or plan.epoch <= self._epochs.get(node, -1):
            return
        self._epochs[node] = plan.epoch
        lease = next((each for each in plan.leases if each.worker == node), None)
        self._tell(node, followed(plan, lease, self._leases.get(node)), now)
        self._leases[node] = lease

    def _made(self, node: str, effect: Send, now: float) -> None:
        plan = effect.record
        assert isinstance(plan, Plan)
        self._epochs[node] = plan.epoch  # not logged again when it returns on the topic
        self._tell(node, EFFECT_LINES[Plan](effect), now)

    def _accuracy(self, node: str, effect: Send, now: float) -> None:
        assert isinstance(effect.record, MeasuredAccuracy)
        found = {(each.path, each.reference): each for each in drifted_paths(effect.record.recent)}
        for key in sorted(found.keys() - self._drifted):
            self._tell(node, accuracy_drifted(found[key]), now)
        for path, reference in sorted(self._drifted - found.keys()):
            self._tell(node, accuracy_returned(path, reference), now)
        self._drifted = frozenset(found)

    def _command(self, node: str, event: Arrived, now: float) -> None:
        command = event.record
        assert isinstance(command, Command)
        # A command without an id comes from the worker's own process when it ends. An expired
        # command is read again after a purge but not executed.
        fresh = now - event.at_s <= COMMAND_VALID_S
        if fresh and command.id and command.pipeline in ("", self._pipeline):
            self._tell(node, EVENT_LINES[Command](event), now)

    def _answer(self, node: str, effect: Send, now: float) -> None:
        answer = effect.record
        assert isinstance(answer, Answer)
        outcome = outcome_of(answer)
        if outcome == ANSWERED and not self._debug:
            return
        # Before the line is made: under overload most are left out.
        if self._room(node, f"query.{outcome}", cause_of(answer), now):
            self._log(node, EFFECT_LINES[Answer](effect))

    # ------------------------------------------------------------------ lines and bulk limits

    def _tell(self, node: str, line: LogLine, now: float) -> None:
        if not line.event.startswith(CROWDS) or self._room(node, line.event, line.kind, now):
            self._log(node, line)

    def _room(self, node: str, event: str, kind: str, now: float) -> bool:
        """Return whether to log a line of an event that occurs in bulk; count it if not."""
        if self._debug:
            return True
        window = self._windows.get((node, event, kind))
        if window is None:
            window = self._windows[node, event, kind] = _LineWindow(now)
        if window.logged >= MOST:
            window.left_out += 1
            return False
        window.logged += 1
        return True

    def _log(self, node: str, line: LogLine) -> None:
        kind = {"kind": line.kind} if line.kind else {}
        self._write(node, line.event, line.text, **line.fields, **kind)

    def _counts(self, node: str, effect: Send, now: float) -> None:
        self._regressed(node, effect.record)
        self._end_windows(now)

    def _heard(self, node: str, event: Arrived, now: float) -> None:
        """End windows at the control app, which reads reports and sends none."""
        self._end_windows(now)

    def _end_windows(self, now: float) -> None:
        # Reports are sent every 200 ms in any case, so a pending count waits for no other line.
        over = [key for key, window in self._windows.items() if now - window.began_s >= WINDOW_S]
        for key in over:
            window = self._windows.pop(key)
            if window.left_out:
                of, event, kind = key
                what = f"{event} ({kind})" if kind else event
                text = f"{what}: {window.left_out} more within {WINDOW_S:g} s"
                self._write(of, "more", text, count=window.left_out, of=event, kind=kind)

    def _regressed(self, node: str, report: Any) -> None:
        times = report.counts.get("regressed", 0)
        if times > self._regressions.get(node, 0):
            self._regressions[node] = times
            text = (
                "offsets of the input topic went back: the topic was recreated or has lost its "
                "end; its present records are served"
            )
            self._write(node, "input.regressed", text, times=times)

    def _write(self, node: str, event: str, text: str, **fields: Any) -> None:
        tell(log, LEVELS[event], event, text, node=node, pipeline=self._pipeline, **fields)

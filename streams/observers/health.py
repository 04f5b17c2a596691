"""Liveness and readiness of a role, from its nodes' reports and the control app's beats.

A node reports every 0.2 s while its events are handled; without a report for ``LIVE_S`` it hangs,
usually in a combine function. The control app sends no reports and beats with its ticks.
"""

from collections.abc import Callable, Sequence

from schemas.effects import Effect, Event, Send
from schemas.enumerations import NodeState
from schemas.records import Report

LIVE_S = 10.0
TOUCH_S = 1.0
READY = (NodeState.READY, NodeState.IDLE, NodeState.DRAINING, NodeState.LEAVING)


class Health:
    """An observer; ``live`` and ``ready`` may be called from another thread.

    ``clock`` never steps. ``touch`` is called at most every ``TOUCH_S`` while the role is alive,
    for a supervisor to watch.
    """

    kinds: frozenset[type] = frozenset((Report,))

    def __init__(
        self, clock: Callable[[], float], touch: Callable[[], None] = lambda: None
    ) -> None:
        self._clock = clock
        self._touch = touch
        self._touched_s = float("-inf")
        self._alive_s: dict[str, float] = {}
        self._reports: dict[str, Report] = {}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is Send and type(effect.record) is Report:
                self._reports[node] = effect.record
                self.beat(node)

    def beat(self, name: str) -> None:
        """Record activity of a node or of the control app."""
        now = self._alive_s[name] = self._clock()
        if now - self._touched_s >= TOUCH_S:
            self._touched_s = now
            self._touch()

    def live(self) -> str:
        """Return why the role must be restarted; empty: it is alive."""
        now = self._clock()
        ages = {name: now - at_s for name, at_s in list(self._alive_s.items())}
        hung = sorted(name for name, age_s in ages.items() if age_s > LIVE_S)
        return f"{hung[0]} has made no progress for {ages[hung[0]]:.0f} s" if hung else ""

    def ready(self) -> str:
        """Return why the role cannot accept work now; empty: it is ready."""
        if not self._alive_s:
            return "not started yet"
        for name, report in sorted(self._reports.items()):
            if report.state not in READY:
                return f"{name} is {report.state}"
            if not report.epoch:
                return f"{name} has no plan yet"
        return self.live()

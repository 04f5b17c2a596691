"""Does a role do its work? An observer of the reports that its nodes send, and of its beats.

A node reports every 0.2 s as long as its events are handled: one that has not for ``LIVE_S`` hangs,
in a combine function as a rule. The control app, which reports to nobody, beats with its ticks.
"""

from collections.abc import Callable, Sequence

from schemas.effects import Effect, Event, Send
from schemas.enumerations import NodeState
from schemas.records import Report

LIVE_S = 10.0
TOUCH_S = 1.0
READY = (NodeState.READY, NodeState.IDLE, NodeState.DRAINING, NodeState.LEAVING)


class Health:
    """An observer; ``live`` and ``ready`` may be asked from another thread.

    ``clock`` never steps. ``touch`` is called every ``TOUCH_S`` at most while there is life: the
    supervisor watches what it leaves.
    """

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
        """A node, or the control app, has done something."""
        now = self._alive_s[name] = self._clock()
        if now - self._touched_s >= TOUCH_S:
            self._touched_s = now
            self._touch()

    def live(self) -> str:
        """Return why the role must be started anew; empty: it need not."""
        now = self._clock()
        ages = {name: now - at_s for name, at_s in list(self._alive_s.items())}
        hung = sorted(name for name, age_s in ages.items() if age_s > LIVE_S)
        return f"{hung[0]} has done nothing for {ages[hung[0]]:.0f} s" if hung else ""

    def ready(self) -> str:
        """Return why the role cannot take work now; empty: it can."""
        if not self._alive_s:
            return "it has not begun"
        for name, report in sorted(self._reports.items()):
            if report.state not in READY:
                return f"{name} is {report.state}"
            if not report.epoch:
                return f"{name} has no plan yet"
        return self.live()

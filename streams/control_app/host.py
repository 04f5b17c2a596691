"""The controller, as both drivers run it: under Faust (``app.py``) and in virtual time.

The host requests counts of the input topic, so that demand is measured even if ingress lags. It
performs no effect itself. A driver replays the history of the ``RESTORED`` topics, then sends
``Woke`` and every later event, and performs the controller's effects and ``Count``:
``ControlEffect`` (schemas/effects.py) lists them.
"""

from collections.abc import Sequence

from schemas.effects import (
    COMMAND_RESULTS,
    PLANS,
    PROFILE_RESULTS,
    QUERIES,
    SESSIONS,
    Count,
    Counted,
    Effect,
    Event,
    Failed,
    Node,
    Woke,
)

RESTORED = (
    PLANS,
    COMMAND_RESULTS,
    SESSIONS,
    PROFILE_RESULTS,
)  # topics that a controller replays before its first event
COUNT_S = 0.05  # least time between counts: one per tick, so that a jump of the load shows soon
BLIND_S = 30.0  # pause after a failed count; demand then comes from ingress's reports


class ControlHost:
    """A node: the controller with periodic counts of the input topic."""

    def __init__(self, controller: Node) -> None:
        self._controller = controller
        self._counting = False
        self._count_s = float("-inf")  # earliest time of the next count

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if type(event) is Failed and event.job == QUERIES:
            self._counted(now + BLIND_S)
            return []
        effects = self._controller.handle(event, now)
        if type(event) is Counted:
            self._counted(now + COUNT_S)
        elif type(event) is Woke and not self._counting and now >= self._count_s:
            self._counting = True
            return [*effects, Count()]
        return effects

    def _counted(self, again_s: float) -> None:
        self._counting, self._count_s = False, again_s

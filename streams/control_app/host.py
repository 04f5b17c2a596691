"""The controller as both drivers run it: under Faust (``app.py``) and in virtual time.

The host has the input topic counted: demand is known from the topic itself, whether or not ingress
keeps up. It performs nothing. A driver hands it what earlier lives left on the topics of
``RESTORED``, then ``Woke`` and all that follows, and performs the effects of the controller and
``Count``: ``ControlEffect`` (schemas/effects.py) are all of them.
"""

from schemas.effects import (
    COMMAND_RESULTS,
    PLANS,
    QUERIES,
    Count,
    Counted,
    Effect,
    Event,
    Failed,
    Node,
    Woke,
)

RESTORED = (PLANS, COMMAND_RESULTS)  # what a controller must know before its first event
COUNT_S = 0.25  # between two counts, at the least: a jump of demand should not wait for one
BLIND_S = 30.0  # after a count that failed: reports of ingress are what demand is known by then


class ControlHost:
    """A controller that is told how many queries have come. A node itself."""

    def __init__(self, controller: Node) -> None:
        self._controller = controller
        self._counting = False
        self._count_s = float("-inf")  # again at the first tick from then on

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, Failed) and event.job == QUERIES:
            self._counted(now + BLIND_S)
            return []
        effects = list(self._controller.handle(event, now))
        if isinstance(event, Counted):
            self._counted(now + COUNT_S)
        elif isinstance(event, Woke) and not self._counting and now >= self._count_s:
            self._counting = True
            effects.append(Count())
        return effects

    def _counted(self, again_s: float) -> None:
        self._counting, self._count_s = False, again_s

"""Precedence of SLO classes with a floor at a worker.

A queue has the earliest deadline first. If it stands, the items of slack classes have waited until
their deadlines are near. They then pass those of a tight class, which miss as often as they do. A
floor limits that. With

    a       the share of misses that the floor allows: (1 - floor) x ``PART`` / number of tasks
    debt    misses of the class here (dropped, or late) less ``a`` per item, within -1..max(1, a x
            ``PAID``): the lower bound is the credit of 1 / a items in time, which pays one miss;
            ``PAID`` items in time pay the upper one
    m       share of about the last ``MEMORY`` items of the class that missed here

the items of the class go ahead of those of other classes while debt > 0 and m < ``HOPELESS``. So
the class misses ``a`` of its items in the long run, if going ahead can bring that about. Above
``HOPELESS`` the class alone exceeds the device, and other classes would starve in vain.

Items whose own deadline leaves them less than their class's SLO do not count, so that a client that
sends them harms only itself.
"""

from schemas.pipeline import Pipeline

MEMORY = 100.0  # items
# Items that pay the longest debt: so many that the misses of a burst are made up for in the share
# of all queries, and no more, as other classes wait meanwhile.
PAID = 1000.0
PART = 0.5  # of the misses that a floor allows; refusals and late answers of egress take the rest
HOPELESS = 0.5
WHOLE = 0.9  # of the class's SLO; a client stamps a deadline before ingress reads it


class ClassPrecedence:
    """The classes with a floor and their misses; ``ended`` updates them in place.

    ``ahead`` has the classes whose items go ahead, ``floors`` whether a class has a floor.
    """

    __slots__ = ("_allowed", "_debts", "_missed", "_slos_s", "ahead", "floors")

    def __init__(self, pipeline: Pipeline) -> None:
        part = PART / len(pipeline.tasks)
        floors = {n: x.floor for n, x in pipeline.class_shares.items() if x.floor > 0}
        self._allowed = {name: (1.0 - floor) * part for name, floor in floors.items()}
        self._debts = dict.fromkeys(floors, 0.0)
        self._missed = dict.fromkeys(floors, 0.0)
        self._slos_s = pipeline.slo_classes
        self.ahead: frozenset[str] = frozenset()
        self.floors = bool(floors)

    def ended(self, slo_class: str, allowed_s: float, *, in_time: bool) -> None:
        """Count an item that was dropped here or ran here. ``allowed_s`` is the time of its query
        from its creation to its deadline, in seconds."""
        missed = self._missed.get(slo_class)
        if missed is None or allowed_s < WHOLE * self._slos_s[slo_class]:
            return
        self._missed[slo_class] = missed + ((not in_time) - missed) / MEMORY
        allowed, debts = self._allowed[slo_class], self._debts
        debt = debts[slo_class] + (not in_time) - allowed
        debts[slo_class] = min(max(-1.0, debt), max(1.0, PAID * allowed))
        self.ahead = frozenset(
            [name for name, m in self._missed.items() if debts[name] > 0.0 and m < HOPELESS]
        )

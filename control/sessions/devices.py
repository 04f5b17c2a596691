"""Free quarters of the tiers' devices, and the devices for a query plan.

A stage occupies quarters of one device of its tier, beside stages of the same pool only. On a tier
of sessions' own devices, a device serves one session and runs all stages of its plan on that tier.
A session gets the device bound to it, if there is one. Stages take the fullest device on which they
fit, the largest stage first, so that whole devices stay free for stages that need them.
"""

from collections.abc import Mapping, Sequence

from control.problem.seats import Seat, bound_device, by_device, is_bound, may_serve
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from schemas.records import SessionChoice, SessionPlan, SessionStage


class Devices:
    """The live devices of the tiers of ``space`` with their free quarters."""

    def __init__(self, seats: Sequence[Seat], space: SessionSpace) -> None:
        self._seats = by_device(seats)
        self._tier = {seat.device: seat.tier for seat in seats}
        self._space = space
        self._own = frozenset(name for name, tier in space.tiers.items() if tier.own)
        self._pools: dict[str, str] = {}  # of devices that are not free
        self._free = dict.fromkeys(self._seats, QUARTERS)
        self._owner: dict[str, str] = {}  # device of an own tier -> its session
        self._draining: dict[tuple[str, str], int] = {}  # quarters by session and device

    def holds(self, plan: SessionPlan) -> bool:
        """Return whether every stage's slot is that of a live worker."""
        return all(
            (seat := self._seats.get(stage.device, {}).get(stage.task)) is not None
            and seat.slot == stage.slot
            for stage in plan.stages
        )

    def mixes(self, plan: SessionPlan) -> bool:
        """Return whether a stage of a plan would be beside stages of another pool."""
        return any(
            self._pools.get(stage.device, pool) != pool
            for stage in plan.stages
            if stage.quarters
            for pool in (self._space.pool(stage.task, stage.setting),)
        )

    def take(self, plan: SessionPlan, *, drains: bool = False) -> None:
        """Occupy the quarters of a plan's stages. If it ``drains``, the session's next plan may use
        the same ones, because its queries replace those of the draining plan."""
        for stage in plan.stages:
            if stage.tier in self._own:
                self._owner[stage.device] = plan.session
            elif stage.device in self._free:
                self._free[stage.device] -= stage.quarters
                if stage.quarters:
                    pool = self._space.pool(stage.task, stage.setting)
                    self._pools.setdefault(stage.device, pool)
                if drains:
                    at = plan.session, stage.device
                    self._draining[at] = self._draining.get(at, 0) + stage.quarters

    @property
    def free(self) -> dict[tuple[str, str], tuple[int, ...]]:
        """The free quarters of the devices by tier and pool, in the order of their names; an own
        device is free or not. Devices that are bound to a session are left out."""
        found: dict[tuple[str, str], tuple[int, ...]] = {}
        for device, quarters in sorted(self._free.items()):
            tier = self._tier[device]
            if not is_bound(device, tier):
                at = tier, self._pools.get(device, "")
                found[at] = (*found.get(at, ()), 0 if device in self._owner else quarters)
        return found

    @property
    def bound(self) -> frozenset[str]:
        """The devices that are bound to a session."""
        return frozenset(each for each, tier in self._tier.items() if is_bound(each, tier))

    def place(self, session: str, choice: SessionChoice, tasks: Sequence[str]) -> "Placed | None":
        """Return the seat of every task for a plan of the session; None if it does not fit."""
        found: dict[str, Seat] = {}
        left = {each: q + self._draining.get((session, each), 0) for each, q in self._free.items()}
        pools, tiers = dict(self._pools), choice.tiers
        for tier in sorted({tiers[task] for task in tasks} & self._own):
            device = self._own_device(session, tier, [t for t in tasks if tiers[t] == tier])
            if device is None:
                return None
            found |= {t: self._seats[device][t] for t in tasks if tiers[t] == tier}
        shared = [task for task in tasks if tiers[task] not in self._own]
        for task in sorted(shared, key=lambda each: (-choice.quarters.get(each, 0), each)):
            quarters = choice.quarters.get(task, 0)
            pool = self._space.pool(task, choice.settings[task])
            open_to = {d: q for d, q in left.items() if not quarters or pools.get(d, pool) == pool}
            seat = self._fullest(task, tiers[task], quarters, open_to)
            if seat is None:
                return None
            left[seat.device] -= quarters
            if quarters:
                pools[seat.device] = pool
            found[task] = seat
        return found

    def _own_device(self, session: str, tier: str, tasks: Sequence[str]) -> str | None:
        """Return the device of an own tier that is bound to the session, else the one it uses, else
        a free one."""
        devices = [
            device
            for device in sorted(self._seats)
            if self._tier[device] == tier and all(task in self._seats[device] for task in tasks)
        ]
        bound = [device for device in devices if device == bound_device(tier, session)]
        ours = [device for device in devices if self._owner.get(device) == session]
        free = [
            device
            for device in devices
            if device not in self._owner and may_serve(device, tier, session)
        ]
        return next(iter((*bound, *ours, *free)), None)

    def _fullest(self, task: str, tier: str, quarters: int, left: Mapping[str, int]) -> Seat | None:
        fitting = [
            device
            for device in sorted(left)
            if self._tier[device] == tier
            and task in self._seats[device]
            and left[device] >= quarters
        ]
        device = min(fitting, key=lambda each: (left[each], each), default=None)
        return None if device is None else self._seats[device][task]


Placed = Mapping[str, Seat]  # by task


def session_plan(
    session: str, number: int, slo_s: float, choice: SessionChoice, placed: Placed
) -> SessionPlan:
    """Return the query plan of a choice on its devices; it does not admit yet."""
    return SessionPlan(
        session=session,
        number=number,
        slo_s=slo_s,
        stages=tuple(
            SessionStage(
                task=task, setting=choice.settings[task], tier=seat.tier, device=seat.device,
                slot=seat.slot, quarters=choice.quarters.get(task, 0),
            )
            for task, seat in placed.items()
        ),
    )  # fmt: skip

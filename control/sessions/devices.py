"""Free quarters of the tiers' devices, and the devices for a query plan.

A stage occupies quarters of one device of its tier, beside stages of the same pool only. On a tier
of sessions' own devices, a device serves one session and runs all stages of its plan on that tier.
A session gets the device bound to it, if there is one. Stages take the fullest device on which they
fit, the largest stage first, so that whole devices stay free for stages that need them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

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
        self._owned: dict[str, set[str]] = {}  # devices of own tiers, by session
        self._draining: dict[str, Counter[str]] = {}  # quarters of devices, by session
        self._of_tier: dict[str, list[str]] = {}  # devices in the order of their names
        for device in sorted(self._seats):
            self._of_tier.setdefault(self._tier[device], []).append(device)

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
                self._owned.setdefault(plan.session, set()).add(stage.device)
            elif stage.device in self._free:
                self._free[stage.device] -= stage.quarters
                if stage.quarters:
                    pool = self._space.pool(stage.task, stage.setting)
                    self._pools.setdefault(stage.device, pool)
                if drains:
                    self._draining.setdefault(plan.session, Counter())[stage.device] += (
                        stage.quarters
                    )

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
        more = Counter(self._draining.get(session, {}))  # quarters of devices, beyond the free ones
        pools: dict[str, str] = {}  # of devices that were free before
        tiers = choice.tiers
        for tier in sorted({tiers[task] for task in tasks} & self._own):
            device = self._own_device(session, tier, [t for t in tasks if tiers[t] == tier])
            if device is None:
                return None
            found |= {t: self._seats[device][t] for t in tasks if tiers[t] == tier}
        shared = [task for task in tasks if tiers[task] not in self._own]
        for task in sorted(shared, key=lambda each: (-choice.quarters.get(each, 0), each)):
            quarters = choice.quarters.get(task, 0)
            pool = self._space.pool(task, choice.settings[task])
            device = self._fullest(task, tiers[task], quarters, pool, more, pools)
            if device is None:
                return None
            more[device] -= quarters
            if quarters:
                pools[device] = pool
            found[task] = self._seats[device][task]
        return found

    def _own_device(self, session: str, tier: str, tasks: Sequence[str]) -> str | None:
        """Return the device of an own tier that is bound to the session, else the one it uses, else
        a free one."""
        devices = self._of_tier.get(tier, ())
        bound = bound_device(tier, session)
        ours = sorted(each for each in self._owned.get(session, ()) if self._tier.get(each) == tier)
        free = (
            each for each in devices if each not in self._owner and may_serve(each, tier, session)
        )
        fitting = (
            each
            for each in chain((bound,), ours, free)
            if all(task in self._seats.get(each, {}) for task in tasks)
        )
        return next(fitting, None)

    def _fullest(
        self, task: str, tier: str, quarters: int, pool: str, more: Mapping[str, int],
        pools: Mapping[str, str],
    ) -> str | None:  # fmt: skip
        """Return the device of a tier with the fewest free quarters, the first one of equals."""
        found, least = None, float("inf")
        for device in self._of_tier.get(tier, ()):
            left = self._free[device] + more.get(device, 0)
            if not quarters <= left < least or task not in self._seats[device]:
                continue
            if quarters and self._pools.get(device, pools.get(device, pool)) != pool:
                continue
            found, least = device, left
            if left == quarters:
                break
        return found


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

"""Check the query plans of sessions in a plan, independently of their placement code."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from control.checks.violations import Constraint, Violation
from control.problem.seats import seat_device, seat_worker
from control.problem.session_space import SessionSpace
from control.problem.tiers import QUARTERS
from schemas.records import Lease, Plan, SessionPlan, SessionStage


def check_sessions(
    plan: Plan, space: SessionSpace, devices: Mapping[str, str]
) -> tuple[Violation, ...]:
    """Return the violations of a plan's sessions; ``devices`` is by worker.

    Draining plans take no new work, and may name workers that are gone.
    """
    leases = {lease.worker: lease for lease in plan.leases}
    shared: list[SessionStage] = []  # on devices of several sessions
    owners: dict[str, set[str]] = {}
    found: list[Violation] = []
    newest = _newest(plan)
    for each in plan.sessions:
        if not (each.admits or each.number == newest[each.session]):
            continue
        for stage in each.stages:
            own = space.tiers[stage.tier].own if stage.tier in space.tiers else False
            if own:
                owners.setdefault(stage.device, set()).add(each.session)
            else:
                shared.append(stage)
            if each.admits:
                found += _stage(each, stage, space, leases, devices)
    found += [*_shares(shared), *_pools(shared, space)]
    found += [
        Violation(Constraint.SESSION_DEVICE, (device, *sorted(names)))
        for device, names in sorted(owners.items())
        if len(names) > 1
    ]
    admitting = Counter(each.session for each in plan.sessions if each.admits)
    found += [
        Violation(Constraint.SESSION_ONCE, (name,), count, 1)
        for name, count in sorted(admitting.items())
        if count > 1
    ]
    return tuple(found)


def _newest(plan: Plan) -> dict[str, int]:
    newest: dict[str, int] = {}
    for each in plan.sessions:
        newest[each.session] = max(each.number, newest.get(each.session, 0))
    return newest


def _shares(stages: Iterable[SessionStage]) -> Iterator[Violation]:
    used: Counter[str] = Counter()
    for stage in stages:
        used[stage.device] += stage.quarters
    for device, quarters in sorted(used.items()):
        if quarters > QUARTERS:
            yield Violation(Constraint.SESSION_SHARE, (device,), quarters / QUARTERS, 1)


def _pools(stages: Iterable[SessionStage], space: SessionSpace) -> Iterator[Violation]:
    settings: dict[str, dict[str, str]] = {}  # by device and pool, the first setting
    for stage in stages:
        if stage.quarters:
            pool = space.pool(stage.task, stage.setting)
            settings.setdefault(stage.device, {}).setdefault(pool, stage.setting)
    for device, mixed in sorted(settings.items()):
        if len(mixed) > 1:
            yield Violation(Constraint.SESSION_POOL, (device, *sorted(mixed.values())))


def _stage(
    plan: SessionPlan,
    stage: SessionStage,
    space: SessionSpace,
    leases: Mapping[str, Lease],
    devices: Mapping[str, str],
) -> Iterator[Violation]:
    allowed = {each.name: each.tiers for each in space.space.stages}
    if stage.tier not in allowed.get(stage.task, ()):
        yield Violation(Constraint.SESSION_TIER, (plan.session, stage.task, stage.tier))
    worker = seat_worker(stage.device, stage.task)
    lease = leases.get(worker)
    if lease is None or lease.task != stage.task or lease.open_slot != stage.slot:
        yield Violation(Constraint.SESSION_SLOT, (plan.session, stage.task), stage.slot)
    elif devices.get(worker) != seat_device(stage.task, stage.tier):
        yield Violation(Constraint.SESSION_TIER, (plan.session, stage.task, stage.tier))

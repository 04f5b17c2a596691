"""Staging: change workers in an order that keeps every task above its required capacity.

A worker that changes its variant within a task serves with the old one until the new one is loaded;
one that changes its task drains first. A change therefore costs the task capacity at once,

    within it     old rate - new rate, if the new variant is slower
    out of it     all of the worker's rate

and adds capacity only when the variant is loaded. Idle workers and workers with faster new variants
change at once. The others change while their task keeps its required capacity, at most half of its
workers at a time; the rest wait until those have loaded. If no change is in flight and none is
allowed, the task lacks capacity anyway: the change that leaves it the most goes ahead, so that the
plan is reached.

A task's waiting workers and their successors may need more slots than it has. The successors then
begin one after another, and at least one of them at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from control.problem.problem import Replicas
from control.rollout.placement import Member, Posts
from schemas.records import Lease
from schemas.variant_id import variant_id

# Items per second of a worker that runs a task's variant in batches of that size.
RateOf = Callable[[str, str, str, int], float]  # worker, task, variant, batch

AT_ONCE = 0.5  # of a task's workers


@dataclass(frozen=True, slots=True)
class _PostChange:
    """The rate that a worker's next post takes from its task."""

    worker: str
    task: str
    loss: float


def staged(
    members: Sequence[Member],
    held: Mapping[str, Lease],
    posts: Posts,
    needed: Mapping[str, float],
    rate: RateOf,
) -> Posts:
    """Return the posts of the next plan: as many of the wanted ones as may be taken now.

    ``needed`` are items per second that each task must serve. Waiting workers keep their posts.
    """
    crew = {member.name: member for member in members}
    serving = {
        name: _rate_now(crew[name], lease, rate)
        for name, lease in held.items()
        if name in crew and lease.open_slot >= 0 and crew[name].serves == lease.task
    }
    # A worker that is not usable must change: a command or the worker itself requires it.
    bound = {name for name in serving if crew[name].usable}
    changes = _changes(held, posts, serving, bound, rate)
    loading = [n for n in serving if crew[n].loaded != held[n].key]
    kept = _waiting(changes, held, serving, needed, loading)
    if len(kept) == len(changes) and changes and not _under_way(crew, held, posts, kept):
        best = max(kept, key=lambda each: (_left(each, held, serving, needed), each.worker))
        kept.remove(best)
    stay = {each.worker: _post(held[each.worker]) for each in kept}
    return {**posts, **stay}


def within_slots(
    posts: Posts, wanted: Posts, held: Mapping[str, Lease], slots: Mapping[str, int]
) -> Posts:
    """Return the posts of the next plan with at most as many workers of a task as it has slots.

    ``wanted`` are the posts of the allocation, which fits; ``slots`` are numbers by task.
    """
    found = dict(posts)
    for task, count in slots.items():
        own = sorted(name for name, post in posts.items() if post.task == task)
        if len(own) <= count:
            continue
        here = [name for name in own if name in held and held[name].task == task]
        new = sorted(set(own) - set(here), key=lambda name: (name in held, name))
        wait = [name for name in here if name not in wanted or wanted[name].task != task]
        begin = max(min(1, len(new)), count - len(here))
        for name in wait[: max(0, len(here) + begin - count)]:
            del found[name]
            found.update({name: wanted[name]} if name in wanted else {})
        for name in new[begin:]:
            del found[name]
    return found


def _rate_now(member: Member, lease: Lease, rate: RateOf) -> float:
    """Return the lower bound of a worker's rate while it may be changing its variant."""
    leased = rate(member.name, lease.task, lease.variant, lease.batch)
    task, loaded = variant_id(member.loaded)
    if task != lease.task or loaded == lease.variant:
        return leased
    return min(leased, rate(member.name, task, loaded, lease.batch))


def _changes(
    held: Mapping[str, Lease],
    posts: Posts,
    serving: Mapping[str, float],
    bound: set[str],
    rate: RateOf,
) -> list[_PostChange]:
    """Return the changes that take capacity away, the smallest loss first."""
    found = []
    for name, now in serving.items():
        lease, post = held[name], posts.get(name)
        if name not in bound:
            continue
        after = 0.0
        if post is not None and post.task == lease.task:
            after = rate(name, post.task, post.variant, post.batch)
        if after < now:
            found.append(_PostChange(name, lease.task, now - after))
    return sorted(found, key=lambda each: (each.loss, each.worker))


def _waiting(
    changes: Sequence[_PostChange],
    held: Mapping[str, Lease],
    serving: Mapping[str, float],
    needed: Mapping[str, float],
    loading: Sequence[str],
) -> list[_PostChange]:
    """Return the changes that must wait; workers in ``loading`` are changing their variant."""
    able = _able(held, serving)
    left = {task: max(1, int(AT_ONCE * count)) for task, (_, count) in able.items()}
    for name in loading:
        left[held[name].task] -= 1
    capacity = {task: sum_able for task, (sum_able, _) in able.items()}
    waiting = []
    for change in changes:
        task = change.task
        if left[task] > 0 and capacity[task] - change.loss >= needed.get(task, 0.0):
            left[task] -= 1
            capacity[task] -= change.loss
        else:
            waiting.append(change)
    return waiting


def _able(held: Mapping[str, Lease], serving: Mapping[str, float]) -> dict[str, tuple[float, int]]:
    """Return each task's capacity and the number of its serving workers."""
    able: dict[str, tuple[float, int]] = {}
    for name, rate in serving.items():
        capacity, count = able.get(held[name].task, (0.0, 0))
        able[held[name].task] = (capacity + rate, count + 1)
    return able


def _left(
    change: _PostChange,
    held: Mapping[str, Lease],
    serving: Mapping[str, float],
    needed: Mapping[str, float],
) -> float:
    """Return the fraction of a task's required capacity that is left after a change."""
    capacity, _ = _able(held, serving)[change.task]
    need = needed.get(change.task, 0.0)
    return (capacity - change.loss) / need if need else capacity


def _under_way(
    crew: Mapping[str, Member],
    held: Mapping[str, Lease],
    posts: Posts,
    kept: Sequence[_PostChange],
) -> bool:
    """Return whether a change is in flight or about to start."""
    waits = {each.worker for each in kept}
    for name, member in crew.items():
        lease, post = held.get(name), posts.get(name)
        if name in waits:
            continue
        if lease is not None and (lease.open_slot < 0 or member.loaded != lease.key):
            return True
        if post is not None and (lease is None or _post(lease).key != post.key):
            return True
    return False


def _post(lease: Lease) -> Replicas:
    return Replicas(task=lease.task, variant=lease.variant, batch=lease.batch, count=1)

"""Leases: the slots that each worker reads, and the open slot that senders write to.

A slot that was ever open may still get work from a sender that follows an older plan. In every plan
exactly one worker of a task therefore reads each of its slots from 0 to the highest ever opened. A
slot moves only when its worker is gone or when another worker opens it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from control.rollout.placement import Member, Posts
from schemas.records import Lease

Held = Mapping[str, Lease]  # worker -> its lease


@dataclass(frozen=True, slots=True)
class Slots:
    """The number of a task's slots, and the highest that was ever open (-1: none)."""

    count: int
    opened: int = -1


SlotsOf = Mapping[str, Slots]  # by task


@dataclass(slots=True)
class _Draft:
    """A lease under construction."""

    worker: str
    task: str
    variant: str
    batch: int
    slots: set[int] = field(default_factory=set)
    open_slot: int = -1
    opens: bool = True  # gets an open slot

    @classmethod
    def of(cls, lease: Lease) -> "_Draft":
        return cls(
            lease.worker, lease.task, lease.variant, lease.batch, set(lease.slots),
            lease.open_slot, opens=lease.open_slot >= 0,
        )  # fmt: skip

    def lease(self) -> Lease:
        return Lease(
            worker=self.worker,
            task=self.task,
            variant=self.variant,
            batch=self.batch,
            slots=tuple(sorted(self.slots)),
            open_slot=self.open_slot,
        )


def running(leases: Iterable[Lease]) -> dict[str, int]:
    """Return the workers that take new work, by "task/variant"."""
    return dict(Counter(x.key for x in leases if x.open_slot >= 0))


def arrange(
    held: Held, members: Sequence[Member], posts: Posts, slots: SlotsOf
) -> tuple[Lease, ...]:
    """Return the leases of the next plan, by worker, from those of the plan in force.

    ``held`` may name workers that are no longer members: other workers adopt their slots. A worker
    without a post, or with one in another task, drains first (open slot -1) and gives up its slots
    once it is quiet. A worker without a post stays open while its task awaits a successor.
    """
    ordered = sorted(members, key=lambda member: member.name)
    drafts = [
        draft
        for member in ordered
        if (draft := _next(held.get(member.name), member, posts)) is not None
    ]
    _await_successors(drafts, held, ordered, posts, slots)
    closed = [draft for draft in drafts if draft.opens and draft.open_slot < 0]
    # Workers that read slots choose first, before a new worker can take their slots.
    for draft in sorted(closed, key=lambda draft: (not draft.slots, draft.worker)):
        task = [other for other in drafts if other.task == draft.task]
        _open(draft, task, slots[draft.task].count)
    return _settled(drafts, held, slots)


def without(held: Held, lost: Iterable[str], slots: SlotsOf) -> tuple[Lease, ...]:
    """Return the leases in force without lost workers; the others adopt their slots."""
    gone = set(lost)
    drafts = [_Draft.of(held[name]) for name in sorted(held) if name not in gone]
    return _settled(drafts, held, slots)


def after(slots: SlotsOf, leases: Iterable[Lease]) -> dict[str, Slots]:
    """Return the state of the slots once these leases have been published."""
    known = dict(slots)
    for lease in leases:
        task = known[lease.task]
        known[lease.task] = replace(task, opened=max(task.opened, *lease.slots, -1))
    return known


def _next(lease: Lease | None, member: Member, posts: Posts) -> _Draft | None:
    """Return the draft of one worker's next lease, or None."""
    post = posts.get(member.name)
    if lease is not None and post is not None and post.task == lease.task:
        draft = _Draft.of(structs.replace(lease, variant=post.variant, batch=post.batch))
        draft.opens = True
        return draft
    released = lease is None or (lease.open_slot < 0 and member.quiet)
    if lease is not None and not released:
        return _Draft.of(structs.replace(lease, open_slot=-1))
    return _Draft(member.name, post.task, post.variant, post.batch) if post else None


def _await_successors(
    drafts: Sequence[_Draft], held: Held, members: Sequence[Member], posts: Posts, slots: SlotsOf
) -> None:
    """Keep workers without a post open until a successor serves their task, if the task has slots
    left beside those that the successors need."""
    serves = {member.name: member.serves for member in members}
    served = {draft.task for draft in drafts if draft.opens and serves[draft.worker] == draft.task}
    awaited = {post.task for post in posts.values()} - served
    spare = Counter({task: slots[task].count for task in awaited})
    spare.subtract(draft.task for draft in drafts if draft.opens)
    for draft in drafts:
        if draft.task in awaited and draft.worker not in posts and spare[draft.task] > 0:
            draft.open_slot = held[draft.worker].open_slot
            draft.opens = draft.open_slot >= 0
            spare[draft.task] -= draft.opens


def _open(draft: _Draft, task: Sequence[_Draft], count: int) -> None:
    """Give a worker an open slot: one that it reads, else the lowest one that is not open.

    Slots of draining workers come last, because they hold work.
    """
    taken = {other.open_slot for other in task}
    draining = {slot for other in task if not other.opens for slot in other.slots}
    free = [slot for slot in range(count) if slot not in taken]
    slot = min(free, key=lambda slot: (slot not in draft.slots, slot in draining, slot))
    for other in task:
        other.slots.discard(slot)
    draft.slots.add(slot)
    draft.open_slot = slot


def _settled(drafts: Sequence[_Draft], held: Held, slots: SlotsOf) -> tuple[Lease, ...]:
    """Return the leases after giving every slot that was ever open a reader."""
    before = {(lease.task, slot): lease.variant for lease in held.values() for slot in lease.slots}
    for task in sorted({draft.task for draft in drafts}):
        readers = [draft for draft in drafts if draft.task == task]
        read = {slot for reader in readers for slot in reader.slots}
        highest = max(slots[task].opened, *read, -1)
        for slot in sorted(set(range(highest + 1)) - read):
            _adopter(readers, before.get((task, slot), "")).slots.add(slot)
    return tuple(draft.lease() for draft in drafts)


def _adopter(readers: Sequence[_Draft], variant: str) -> _Draft:
    """Return the adopter of an orphaned slot: same variant first, then the fewest slots."""
    return min(
        readers,
        key=lambda each: (not each.opens, each.variant != variant, len(each.slots), each.worker),
    )

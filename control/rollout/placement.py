"""Placement of variants on workers with the fewest changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from control.problem.problem import Allocation, Replicas
from schemas.records import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live worker, as input of planners.

    ``loaded`` ("task/variant") is the variant that it reports on its device, ``serves`` the task
    that it serves now ("" while it loads its first variant of the task). A worker that is not
    ``usable`` was drained by a command or is leaving. A ``quiet`` worker is drained: its slots are
    empty. Its batches take ``pace`` times as long as those of others of its kind.
    """

    name: str
    device: str = ""
    loaded: str = ""
    serves: str = ""
    usable: bool = True
    quiet: bool = False
    pace: float = 1.0


Posts = Mapping[str, Replicas]  # worker -> the variant to run
ONE_KIND: Mapping[str, str] = {}


def place(
    members: Sequence[Member],
    held: Mapping[str, Lease],
    allocation: Allocation,
    kinds: Mapping[str, str] = ONE_KIND,
) -> Posts:
    """Return a variant for as many workers as the allocation requires.

    Workers that already run the variant come first, those with its batch before others, then
    workers of its task, idle workers, and workers of another task, which must drain first. Ties are
    broken by pace, then by name. ``kinds`` names the kind of each device if the allocation
    distinguishes them. A resumed allocation may list a variant once for each batch.
    """
    free = {m.name: m for m in sorted(members, key=lambda m: (m.pace, m.name)) if m.usable}
    missing = [each.count for each in allocation.replicas]
    posts: dict[str, Replicas] = {}
    for rank in range(_WORST + 1):
        for at, wanted in enumerate(allocation.replicas):
            fitting = [
                m
                for m in free.values()
                if wanted.device in ("", kinds.get(m.device, m.device))
                and wanted.may_run_on(m.device)
                and _rank(m, held.get(m.name), wanted) == rank
            ]
            for member in fitting[: missing[at]]:
                posts[member.name] = wanted
                del free[member.name]
                missing[at] -= 1
    return posts


_WORST = 7


def _rank(member: Member, lease: Lease | None, wanted: Replicas) -> int:
    """Return how well a worker fits a variant: 0 is best."""
    if lease is None:
        return 3 if member.loaded == wanted.key else 6
    draining = lease.open_slot < 0
    if lease.key == wanted.key:
        return 2 if draining else int(lease.batch != wanted.batch)
    if lease.task == wanted.task:
        return 5 if draining else 4
    return _WORST

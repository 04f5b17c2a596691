"""Cold start: a task that no worker can serve yet starts with a variant that loads faster.

A worker serves with its loaded variant while it loads another one. When no worker of a task has a
loaded variant, half of its workers (rounded up) first load an *interim variant* and then switch to
the wanted variant; the others load the wanted variant directly. The interim variant is the one with
the shortest load time on the worker's device among those that

    pay      load at least ``SOONER_S`` sooner, and in at most half of the time
    keep     the latency of the wanted variant, in batches of the same size or smaller
    fit      into the worker's memory together with the wanted variant
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from control.problem.problem import Replicas
from control.rollout.placement import Member, Posts
from profiles.measurements import Entry, ProfileError
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Policy
from schemas.records import Lease
from schemas.variant_id import variant_id

SOONER_S = 2.0
PART = 0.5  # of the wanted variant's time to load


@dataclass(frozen=True, slots=True, kw_only=True)
class InterimVariants:
    """The inputs for choosing interim variants; ``memory`` is in bytes by device."""

    pipeline: Pipeline
    policy: Policy
    profile: ProfileTable
    memory: Mapping[str, int]

    def of(self, post: Replicas, device: str) -> Replicas | None:
        """Return the interim variant for a worker that is to run a post, or None."""
        try:
            wanted = self.profile.entry(post.task, post.variant, device)
            kept_s = self._seconds(wanted, device, post.batch)
        except ProfileError:
            return None
        found = [
            (entry.load_s, -entry.accuracy, entry.variant, batch)
            for entry in self._sooner(wanted, device)
            if (batch := self._batch(entry, device, post.batch, kept_s))
        ]
        if not found:
            return None
        _, _, variant, batch = min(found)
        return replace(post, variant=variant, batch=batch)

    def _sooner(self, wanted: Entry, device: str) -> list[Entry]:
        """Return the variants that pay and fit, as in the module's table."""
        before_s = min(wanted.load_s - SOONER_S, wanted.load_s * PART)
        room = self.memory.get(device)
        found = []
        for variant in self.pipeline.task(wanted.task).variants:
            try:
                entry = self.profile.entry(wanted.task, variant.name, device)
            except ProfileError:
                continue
            fits = room is None or entry.memory_bytes + wanted.memory_bytes <= room
            if entry.load_s <= before_s and fits:
                found.append(entry)
        return found

    def _batch(self, entry: Entry, device: str, most: int, kept_s: float) -> int:
        """Return the largest measured batch up to ``most`` that takes ``kept_s`` at most, or 0."""
        sizes = [row.batch for row in entry.latency if row.batch <= most]
        return max((b for b in sizes if self._seconds(entry, device, b) <= kept_s), default=0)

    def _seconds(self, entry: Entry, device: str, batch: int) -> float:
        quantile = self.policy.latency
        return self.profile.latency_s(entry.task, entry.variant, device, batch, quantile)


def with_interims(
    members: Sequence[Member], held: Mapping[str, Lease], posts: Posts, interims: InterimVariants
) -> Posts:
    """Return the posts, with interim variants at the tasks that no worker can serve yet.

    A worker that is already loading its interim variant or the wanted variant completes the load.
    """
    crew = {member.name: member for member in members}
    workers: dict[str, list[str]] = defaultdict(list)
    for name in sorted(posts):
        workers[posts[name].task].append(name)
    found = dict(posts)
    for task, names in workers.items():
        asked = interims.pipeline.task(task)
        chooses = asked.selection or asked.dispatch
        if chooses or any(variant_id(crew[name].loaded).task == task for name in names):
            continue
        steps: dict[str, Replicas] = {}
        for name in names:
            interim = interims.of(posts[name], crew[name].device)
            if interim is not None and _may_begin(held.get(name), interim):
                steps[name] = interim
        begun = [name for name in steps if name in held and held[name].key == steps[name].key]
        first = dict.fromkeys([*begun, *steps])
        found.update((name, steps[name]) for name in list(first)[: (len(names) + 1) // 2])
    return found


def _may_begin(lease: Lease | None, interim: Replicas) -> bool:
    """Return whether a worker with this lease has not begun to load another variant of the task."""
    return lease is None or lease.task != interim.task or lease.key == interim.key

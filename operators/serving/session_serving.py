"""Serving sessions: every item runs with the setting that its session's query plan names.

A worker holds the settings of all plans whose slots it reads, and loads them one at a time. Work
may also ask for a setting that no plan names any more, or not yet; it waits until that is loaded. A
setting that no plan and no work needs is unloaded. A failed load is retried after 1 s, 2 s,
4 s, at most a minute; the items of its setting fail meanwhile.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from control.per_query.batching import release_rule
from control.policies import plans_sessions
from control.sessions.session_book import held_settings
from operators.serving.deadline_queue import Ticket
from operators.serving.running_batch import NextBatch
from operators.serving.worker_rules import LatencyOf, WorkerRules
from schemas.effects import Effect, Load, Unload
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan

RETRY_S, MOST_RETRY_S = 1.0, 60.0  # delay before a failed load is retried


def retry_delay_s(before_s: float) -> float:
    """Return the seconds from a failed load to its retry; ``before_s`` is the previous delay, 0 for
    the first failure."""
    return min(max(RETRY_S, 2 * before_s), MOST_RETRY_S)


class RefusedSetting(NamedTuple):
    """A setting that failed to load; ``retry_s`` is its retry, ``after_s`` after the failure."""

    error: str
    retry_s: float
    after_s: float


class SessionServing:
    """A worker's settings for sessions. ``active``: the policy in force plans sessions.

    ``held`` can run inference now; ``trouble`` says why wanted settings cannot be loaded.
    """

    __slots__ = (
        "_latency", "_loading", "_pipeline", "_refused", "_wanted", "active", "held", "serving",
    )  # fmt: skip

    def __init__(self, pipeline: Pipeline, latency: LatencyOf) -> None:
        self.active = False
        self.serving = ""  # the lease's "task/variant"
        self._latency = latency
        self.held: frozenset[str] = frozenset()
        self._pipeline = pipeline
        self._loading = ""
        self._wanted: tuple[str, ...] = ()
        self._refused: dict[str, RefusedSetting] = {}

    def follow(self, plan: Plan, lease: Lease | None) -> None:
        """Take the plans of a new plan; if its settings differ, failed ones are retried at once."""
        self.active = plans_sessions(self._pipeline, plan.settings.policy)
        self.serving = lease.key if lease else ""
        wanted = held_settings(plan.sessions, lease.task, lease.slots) if lease else ()
        if wanted != self._wanted:
            self._wanted, self._refused = wanted, {}

    def take_over(self, held: frozenset[str]) -> None:
        """Start with the variants that the device holds; unneeded ones are unloaded later."""
        self.held = held

    def release(self) -> None:
        """Forget every setting: the lease's variant is served from now on.

        The settings are evicted with the first batch of a variant that is loaded alone.
        """
        self.held, self._loading, self._wanted, self._refused = frozenset(), "", (), {}

    def setting(self, ticket: Ticket) -> str:
        """Return the setting that an item asks for; without a session, the lease's variant."""
        session = ticket.work.session
        return self.serving if session is None else session.stage(ticket.work.task).setting

    def more(self, queue: Iterable[Ticket], running: str, now: float) -> list[Effect]:
        """Unload unneeded settings, and load the next missing one."""
        asked = dict.fromkeys((*self._wanted, *map(self.setting, queue)))
        idle = sorted(self.held.difference(asked, (running,)))
        self.held -= frozenset(idle)
        effects: list[Effect] = [Unload(setting) for setting in idle]
        if not self._loading:
            refused = [each for each, why in self._refused.items() if now < why.retry_s]
            there = self.held.union(refused)
            self._loading = next((each for each in asked if each not in there), "")
            effects += [Load(self._loading, beside=True)] if self._loading else []
        return effects

    def loaded(self, setting: str) -> list[Effect]:
        """Record a finished load; unload a variant that was loaded for another policy."""
        if setting == self._loading:
            self._loading = ""
            self.held |= {setting}
            self._refused.pop(setting, None)
        return [] if setting in self.held else [Unload(setting)]

    def gave_up(self, setting: str, error: str, now: float) -> None:
        """Record a failed load; ignored if it was not a session's."""
        if setting == self._loading:
            self._loading = ""
            before = self._refused.get(setting)
            after_s = retry_delay_s(0.0 if before is None else before.after_s)
            self._refused[setting] = RefusedSetting(error, now + after_s, after_s)

    @property
    def unloadable(self) -> tuple[str, ...]:
        """The settings that failed to load."""
        return tuple(self._refused)

    @property
    def trouble(self) -> str:
        """The reasons why settings failed to load; "" if none did."""
        return "; ".join(each.error for each in self._refused.values())

    def retries(self, now: float) -> bool:
        """Return whether a setting that failed to load is due for a retry."""
        refused = self._refused
        return bool(refused) and any(each.retry_s <= now for each in refused.values())

    def refuse(self, queue: deque[Ticket]) -> list[tuple[str, str, list[Ticket]]]:
        """Remove the items whose setting failed to load; return them by setting with the error."""
        found: dict[str, list[Ticket]] = {}
        kept: list[Ticket] = []
        for ticket in queue:
            setting = self.setting(ticket)
            (found.setdefault(setting, []) if setting in self._refused else kept).append(ticket)
        queue.clear()
        queue.extend(kept)
        return [(each, self._refused[each].error, found[each]) for each in found]

    # ------------------------------------------------------------------ batches

    @property
    def loading(self) -> bool:
        """Always false: a loading setting does not keep the others from serving."""
        return False

    def begin_s(self, queued: int, now: float) -> float:
        """Return when the next batch may begin: now."""
        return now

    def take(
        self, queue: deque[Ticket], lease: Lease, rules: WorkerRules, now: float
    ) -> NextBatch | None:
        """Take the next items of one setting from the queue; None if no item's setting is held."""
        setting = next((each for each in map(self.setting, queue) if each in self.held), "")
        if not setting:
            return None
        ends_s = now + self._latency(setting, 1)
        batch: list[Ticket] = []
        late: list[Ticket] = []
        kept: list[Ticket] = []
        for ticket in queue:
            full = len(batch) >= lease.batch or bool(batch and (ticket.alone or batch[0].alone))
            if full or self.setting(ticket) != setting:
                kept.append(ticket)
            elif rules.overrun_s(ticket.work, ticket.item, ends_s) > 0:
                late.append(ticket)
            else:
                batch.append(ticket)
        queue.clear()
        queue.extend(kept)
        return NextBatch(
            batch, late, setting, len(batch), ends_s, release_rule(len(batch), lease.batch)
        )

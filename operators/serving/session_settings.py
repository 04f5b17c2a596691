"""The settings of sessions that a worker holds side by side, loaded one at a time.

A worker holds the settings of the plans whose slots it reads. Work may also ask for one that no
plan names any more, or not yet: it waits until that is loaded. A setting that no plan and no work
needs is unloaded.
"""

from collections import deque
from collections.abc import Callable, Iterable

from control.policies import plans_sessions
from control.sessions.session_book import settings_of
from operators.serving.deadline_queue import Ticket
from schemas.effects import Effect, Load, Unload
from schemas.pipeline import Pipeline
from schemas.records import Lease, Plan

Late = Callable[[Ticket], bool]


class SessionSettings:
    """What a worker holds for sessions. ``active``: the policy in force plans sessions.

    ``held`` can run inference now; ``trouble`` says why a wanted setting cannot be loaded.
    """

    __slots__ = ("_loading", "_pipeline", "_refused", "_wanted", "active", "held", "key")

    def __init__(self, pipeline: Pipeline) -> None:
        self.active = False
        self.key = ""  # the lease's "task/variant"
        self.held: frozenset[str] = frozenset()
        self._pipeline = pipeline
        self._loading = ""
        self._wanted: tuple[str, ...] = ()
        self._refused: dict[str, str] = {}  # settings that failed to load, and why

    def follow(self, plan: Plan, lease: Lease | None) -> None:
        """Take the plans of a new plan; settings that failed to load are tried again."""
        self.active = plans_sessions(self._pipeline, plan.settings.policy)
        self.key = lease.key if lease else ""
        wanted = settings_of(plan.sessions, lease.task, lease.slots) if lease else ()
        if wanted != self._wanted:
            self._wanted, self._refused = wanted, {}

    def setting(self, ticket: Ticket) -> str:
        """Return the setting that an item asks for; without a session, the lease's variant."""
        session = ticket.work.session
        return self.key if session is None else session.stage(ticket.work.task).setting

    def more(self, queue: Iterable[Ticket], running: str) -> list[Effect]:
        """Unload what nothing needs, and load the next missing setting."""
        asked = dict.fromkeys((*self._wanted, *map(self.setting, queue)))
        idle = sorted(self.held - asked.keys() - {running})
        self.held -= frozenset(idle)
        effects: list[Effect] = [Unload(setting) for setting in idle]
        if not self._loading:
            there = self.held | self._refused.keys()
            self._loading = next((each for each in asked if each not in there), "")
            effects += [Load(self._loading, beside=True)] if self._loading else []
        return effects

    def loaded(self, setting: str) -> None:
        """Record a finished load."""
        if setting == self._loading:
            self._loading = ""
        self.held |= {setting}

    def gave_up(self, setting: str, error: str) -> None:
        """Record a failed load."""
        if setting == self._loading:
            self._loading = ""
        self._refused[setting] = error

    @property
    def trouble(self) -> str:
        """Why the first of the settings that failed cannot be loaded; "": all could be."""
        return next(iter(self._refused.values()), "")

    def refused(self, queue: Iterable[Ticket]) -> list[Ticket]:
        """Return the items whose setting cannot be loaded."""
        return [ticket for ticket in queue if self.setting(ticket) in self._refused]

    def why(self, ticket: Ticket) -> str:
        """Return why the setting of an item cannot be loaded."""
        return self._refused[self.setting(ticket)]

    def next(self, queue: Iterable[Ticket]) -> str:
        """Return the setting of the first item that can run now; "": none can."""
        return next((s for s in map(self.setting, queue) if s in self.held), "")

    def taken(
        self, queue: deque[Ticket], setting: str, size: int, late: Late
    ) -> tuple[list[Ticket], list[Ticket]]:
        """Take up to ``size`` items of a setting from the queue, and the late ones among them."""
        batch: list[Ticket] = []
        gone: list[Ticket] = []
        kept: list[Ticket] = []
        for ticket in queue:
            full = len(batch) >= size or bool(batch and (ticket.alone or batch[0].alone))
            if full or self.setting(ticket) != setting:
                kept.append(ticket)
            else:
                (gone if late(ticket) else batch).append(ticket)
        queue.clear()
        queue.extend(kept)
        return batch, gone

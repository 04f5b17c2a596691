"""Heartbeats: the report that a node sends to the control plane every 200 ms."""

from collections.abc import Callable, Mapping, Sequence

from operators.serving.outbox import Onward
from schemas.count_names import CHARGED_S, UNLOADABLE, count_name
from schemas.effects import REPORTS, Effect, Inferred, Send, Wake
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.pipeline_fingerprint import fingerprint
from schemas.records import ANSWERED, Report, SlotState
from schemas.release import READS, RELEASE

INTERVAL_S = 0.2
FAULTS = frozenset((NodeState.FAILED, NodeState.STUCK))  # states that come with an error


class _Ran:
    """The batches of a variant that ran, in numbers."""

    __slots__ = ("batches", "busy_s", "charged_s", "items")

    def __init__(self) -> None:
        self.items = 0
        self.batches = 0
        self.busy_s = 0.0
        self.charged_s = 0.0


class Reporter:
    """A node's counts and state, and its reports when they are due."""

    __slots__ = (
        "_arrived", "_epoch", "_file", "_incarnation", "_next", "_pipeline", "_ran", "_role",
        "_variants", "counts", "device", "error", "held", "measured", "name", "slots", "state",
        "task", "unloadable", "variant", "warning",
    )  # fmt: skip

    def __init__(
        self, name: str, role: str, pipeline: Pipeline, incarnation: float, device: str = ""
    ) -> None:
        self.name = name
        self.device = device
        self.state = NodeState.IDLE
        self.error = ""  # why the state is one of ``FAULTS``
        self.warning = ""  # an error during which the node keeps serving
        self.task = ""
        self.variant = ""
        self.counts: dict[str, float] = {READS: float(RELEASE)}
        self.held: tuple[str, ...] = ()
        self.unloadable: tuple[str, ...] = ()  # settings of sessions that failed to load
        self.measured: Mapping[str, float] = {}  # measured accuracies by path, of a scorer
        self.slots: Callable[[], tuple[SlotState, ...]] = tuple
        # By variant; counts of single items and batches get their names when they are reported.
        self._arrived: dict[str, int] = {}
        self._ran: dict[str, _Ran] = {}
        self._role = role
        self._pipeline = pipeline.name
        self._variants = frozenset([v.key for task in pipeline.tasks for v in task.variants])
        self._file = fingerprint(pipeline)
        self._incarnation = incarnation
        self._epoch = 0
        self._next = float("-inf")

    def follow(self, epoch: int, state: NodeState) -> None:
        """Set the epoch of the plan that the node follows, and the node's state."""
        self._epoch = epoch
        self.state = state

    def count(self, name: str, amount: float = 1.0) -> None:
        """Add ``amount`` to a count."""
        self.counts[name] = self.counts.get(name, 0) + amount

    def arrived(self, variant: str, items: int) -> None:
        """Count items that have arrived for a variant."""
        self._arrived[variant] = self._arrived.get(variant, 0) + items

    def ran(self, variant: str, items: int, event: Inferred, onward: Sequence[Onward]) -> None:
        """Count a batch of ``items`` items, and what they became: children, or failures."""
        ran = self._ran.get(variant)
        if ran is None:
            ran = self._ran[variant] = _Ran()
        ran.items += items
        ran.batches += 1
        ran.busy_s += event.finished_s - event.started_s
        ran.charged_s += event.charged_s
        sent: dict[str, int] = {}
        failures = 0
        for _, task, item in onward:
            if task:
                sent[task] = sent.get(task, 0) + 1
            elif item.end is not None and item.end.outcome != ANSWERED:
                failures += 1
        for task, children in sent.items():
            self.count(f"children/{variant}/{task}", children)
        if failures:
            self.count(f"failed/{variant}", failures)

    def forget(self, setting: str) -> None:
        """Drop the counts of a session's setting that was unloaded; variants keep theirs, by which
        the control app estimates."""
        if setting in self._variants:
            return
        self._arrived.pop(setting, None)
        self._ran.pop(setting, None)
        for name in [each for each in self.counts if _is_of(each, setting)]:
            del self.counts[name]

    def due(self, now: float) -> list[Effect]:
        """Return the report and the wake-up for the next one if a report is due."""
        if now < self._next:
            return []
        # From now, not from the last report: a stall causes no burst of missed reports.
        self._next = now + INTERVAL_S
        return [Send(REPORTS, self.report(now), 0), Wake(self._next)]

    def at_once(self, now: float) -> list[Effect]:
        """Return a report outside the interval."""
        return [Send(REPORTS, self.report(now), 0)]

    def report(self, now: float) -> Report:
        """Return the node's current report."""
        for variant, items in self._arrived.items():
            self.counts[f"arrived/{variant}"] = items
        for variant, ran in self._ran.items():
            self.counts[f"finished/{variant}"] = ran.items
            self.counts[f"batches/{variant}"] = ran.batches
            self.counts[f"busy_s/{variant}"] = ran.busy_s
            if ran.charged_s:
                self.counts[f"{CHARGED_S}/{variant}"] = ran.charged_s
        counts = dict(self.counts)
        if self.unloadable:
            counts |= {f"{UNLOADABLE}/{each}": 1.0 for each in self.unloadable}
        return Report(
            node=self.name, role=self._role, pipeline=self._pipeline, epoch=self._epoch,
            incarnation=self._incarnation, sent_s=now, state=self.state, device=self.device,
            task=self.task, variant=self.variant, slots=self.slots(), counts=counts,
            error=self.error if self.state in FAULTS else self.warning, held=self.held,
            file=self._file, measured=self.measured,
        )  # fmt: skip


def _is_of(name: str, setting: str) -> bool:
    """Return whether a count is of this setting, as ``children/scan/scan@scale=1/read`` is."""
    return f"{count_name(name).of}/".startswith(f"{setting}/")

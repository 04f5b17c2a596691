"""Batches from the policy's tables: variant and size by queue length, slack and load."""

from control.per_query.batching import batch_size
from control.per_query.local_pace import LocalPace
from control.per_query.table_lookup import Selections, TableLookup
from control.policies.ramsis.burst_lengths import WAIT
from operators.bursts import BurstBuffer
from operators.serving.deadline_queue import Ticket
from operators.serving.device import Device
from operators.serving.worker_rules import LatencyOf, WorkerRules
from schemas.pipeline import Pipeline
from schemas.records import Selection
from schemas.variant_id import variant_id, variant_key


class TableBatching:
    """The tables that a worker follows, if the policy in force has any for its task."""

    __slots__ = (
        "_device", "_largest", "_latency", "_pace", "_pipeline", "_selections",
        "arrivals", "following",
    )  # fmt: skip

    def __init__(
        self, pipeline: Pipeline, latency: LatencyOf, device: Device, pace: LocalPace
    ) -> None:
        self.arrivals = BurstBuffer(0.0)
        self._device, self._pace = device, pace
        self._pipeline = pipeline
        self._latency = latency
        self._largest = {v.key: v.batch for task in pipeline.tasks for v in task.variants}
        self._selections = Selections()
        self.following: TableLookup | None = None  # the tables in force

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that the tables choose from, as "task/variant"."""
        return self.following.variants if self.following is not None else ()

    def take(self, selection: Selection) -> bool:
        """Take a task's tables, which replace earlier ones; return False for unfit ones."""
        task = next((t for t in self._pipeline.tasks if t.name == selection.task), None)
        if selection.pipeline != self._pipeline.name or task is None:
            return False
        return self._selections.take(selection, [variant.name for variant in task.variants])

    def follow(self, policy: str, wanted: str, now: float) -> None:
        """Follow the tables of the policy for the task of ``wanted`` ("task/variant"), if any."""
        before = self.following
        self.following = following = self._selections.of(policy, variant_id(wanted).task)
        if (following is None) != (before is None):
            self.arrivals = BurstBuffer(now)
        if following is not None:
            self.arrivals.wait_s = WAIT * following.selection.slo_s

    def ran(self, variant: str, cost: int, took_s: float) -> None:
        """Learn the device's pace from a batch."""
        self._pace.ran(variant, cost, took_s)

    def choose(
        self, head: Ticket, ready: int, rules: WorkerRules, largest: int, now: float
    ) -> tuple[str, int]:
        """Return the tables' variant and batch size for ``ready`` items, or those that a dispatcher
        chose.

        The serving variant replaces one that is not loaded yet. If the policy says so, items that
        would be late in any case run in batches of up to ``largest``.
        """
        tables, device = self.following, self._device
        assert tables is not None
        stretch = self._pace.stretch if rules.paced else 1.0
        slack_s = rules.slack_s(head.work, head.item, tables.selection.slo_s, now) / stretch
        if head.work.variant:  # a dispatcher has chosen
            variant = variant_key(tables.selection.task, head.work.variant)
            size = min(head.work.follow + 1, ready)
        else:
            qps = self.arrivals.qps(now) * stretch
            variant, size = tables.choose(ready, slack_s, qps, self.arrivals.run)
        if rules.capped and self._latency(variant, size) > slack_s:
            return device.serving, batch_size(ready, largest)  # maximises throughput
        if variant not in device.held:
            variant = device.serving
        return variant, min(size, rules.largest.get(variant, self._largest[variant]))

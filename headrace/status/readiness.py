"""Decide whether a pipeline is ready to serve, from plans, reports, tables and control's answer.

A pipeline is ready once the control app has answered; every node of the cluster has reported since
the start, follows the newest plan, and has loaded its assigned variant; the plan serves every
task; and the tables that workers follow are complete, with all their variants loaded.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from control.policies import policy_named, selections
from headrace.cells import few
from headrace.errors import Unsuccessful
from schemas.enumerations import NodeState
from schemas.pipeline import Pipeline
from schemas.records import Plan, Report, Selection
from schemas.variant_id import variant_key

SETTLED = frozenset((NodeState.READY, NodeState.IDLE, NodeState.DRAINING))


@dataclass(slots=True)
class Readiness:
    """The readiness of a pipeline, fed with plans, reports and tables.

    ``nodes`` are the names that must report. ``since_s`` (epoch seconds) is the start: reports of
    earlier incarnations are ignored.
    """

    pipeline: Pipeline
    nodes: tuple[str, ...]
    since_s: float
    answered: bool = False  # whether the control app has answered
    _plan: Plan | None = None
    _reports: dict[str, Report] = field(default_factory=dict)
    _tables: dict[tuple[str, str], Selection] = field(default_factory=dict)  # by policy and task

    def see(self, records: Iterable[object]) -> None:
        """Add plans, reports and tables; raise ``Unsuccessful`` for a worker that has failed."""
        for record in records:
            if isinstance(record, Plan) and record.pipeline == self.pipeline.name:
                if self._plan is None or record.epoch >= self._plan.epoch:
                    self._plan = record
            elif isinstance(record, Report):
                self._report(record)
            elif isinstance(record, Selection) and record.pipeline == self.pipeline.name:
                self._tables[record.policy, record.task] = record

    def _report(self, report: Report) -> None:
        fresh = report.incarnation >= self.since_s and report.pipeline == self.pipeline.name
        if not fresh:
            return
        if report.state == NodeState.FAILED:
            raise Unsuccessful(f"worker {report.node} failed: {report.error}; correct the variant")
        self._reports[report.node] = report

    @property
    def plan(self) -> Plan | None:
        """The newest plan."""
        return self._plan

    @property
    def reporting(self) -> bool:
        """Whether every node has reported."""
        return all(name in self._reports for name in self.nodes)

    def settled(self) -> int:
        """Return the number of nodes that follow the newest plan and have loaded their variant."""
        return sum(self._is_settled(name) for name in self.nodes)

    def _is_settled(self, name: str) -> bool:
        report, plan = self._reports.get(name), self._plan
        if report is None or plan is None:
            return False
        return report.epoch == plan.epoch and report.state in SETTLED

    def missing(self) -> str:
        """Return a phrase on the first missing condition, or "" once the pipeline is ready."""
        silent = [name for name in self.nodes if name not in self._reports]
        if silent:
            return f"waiting for {few(silent)}"
        if self._plan is None or not self.answered:
            return "waiting for the first plan"
        loading = [self._doing(name) for name in self.nodes if not self._is_settled(name)]
        if loading:
            return f"loading: {few(loading)}"
        unserved = self._unserved()
        if unserved:
            return f"the plan has no worker for {', '.join(unserved)}"
        return self._untabled(self._plan)

    def _untabled(self, plan: Plan) -> str:
        """Return the first table or table variant that is missing, as a phrase, or ""."""
        name = plan.settings.policy
        policy = policy_named(self.pipeline, name)
        for task in selections(self.pipeline, policy) if policy else ():
            tables = self._tables.get((name, task))
            if tables is None or not tables.complete:
                return f"building the tables of {task}"
            for lease in plan.leases:
                report = self._reports.get(lease.worker)
                for variant in tables.variants if report and lease.task == task else ():
                    if f"load_s/{variant_key(task, variant)}" not in report.counts:  # type: ignore[union-attr]
                        return f"loading: {lease.worker} ({variant_key(task, variant)})"
        return ""

    @property
    def underserved(self) -> bool:
        """Whether only workers for a task are missing: waiting longer may not help."""
        return self.answered and self.settled() == len(self.nodes) and bool(self._unserved())

    def _unserved(self) -> list[str]:
        leases = self._plan.leases if self._plan else ()
        served = {lease.task for lease in leases if lease.open_slot >= 0}
        return [name for name in self.pipeline.task_names if name not in served]

    def _doing(self, name: str) -> str:
        leases = self._plan.leases if self._plan else ()
        lease = next((each for each in leases if each.worker == name), None)
        return f"{name} ({lease.key})" if lease else name

"""``headrace reload``: have workers load edited operators, and report the result."""

import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field

from msgspec import structs

from headrace.broker.connect import reached
from headrace.client.give_command import give
from headrace.client.topic_clients import Tail, decoded
from headrace.config.pipeline_file import PipelineFile
from headrace.errors import UNSUCCESSFUL
from headrace.terminal import print_json, print_text, say
from schemas.effects import REPORTS
from schemas.records import Report
from schemas.variant_id import variant_key
from streams.topics import physical

LISTEN_S = 0.6  # three report intervals: every worker has reported its counts
WITHIN_S = 60.0
ALL = "all"


@dataclass(slots=True)
class ReloadWatch:
    """Follows the reports of workers that hold the variants of ``target``: "all", a task, or
    "task/variant"."""

    pipeline: str
    target: str
    _first: dict[str, Report] = field(default_factory=dict)
    _last: dict[str, Report] = field(default_factory=dict)

    def see(self, records: Iterable[object]) -> None:
        """Add reports; ignore other records."""
        for record in records:
            if isinstance(record, Report) and self._concerns(record):
                self._first.setdefault(record.node, record)
                self._last[record.node] = record

    def outcomes(self, epoch: int) -> dict[str, str]:
        """Return the state of the reload in the plan ``epoch`` by worker: "reloaded", "loading", or
        the error."""
        return {node: self._outcome(node, epoch) for node in sorted(self._last)}

    def _concerns(self, report: Report) -> bool:
        key = variant_key(report.task, report.variant)
        serves = report.pipeline == self.pipeline and bool(report.variant)
        return serves and self.target in (ALL, report.task, key)

    def _outcome(self, node: str, epoch: int) -> str:
        first, last = self._first[node], self._last[node]
        if last.incarnation != first.incarnation:
            return "reloaded"  # a new process has the code of its start
        if last.epoch >= epoch and _count(last, "reload_failed") > _count(first, "reload_failed"):
            return last.error
        done = last.epoch >= epoch and _count(last, "reloaded") > _count(first, "reloaded")
        return "reloaded" if done else "loading"


def _count(report: Report, name: str) -> float:
    return sum(value for key, value in report.counts.items() if key.startswith(f"{name}/"))


def reload(file: PipelineFile, bootstrap: str | None, target: str, *, as_json: bool) -> int:
    """Give the command, wait for the workers and print the results; return 1 if a worker failed."""
    kafka = reached(bootstrap)
    watch = ReloadWatch(file.pipeline.name, target)
    with closing(Tail(kafka, physical("", REPORTS), since_s=time.time() - LISTEN_S)) as reports:
        _listen(watch, reports, LISTEN_S)
        result = give(file, kafka, "reload", {"variant": target})
        if not result.ok:
            refused = f"headrace: reload was refused: {result.message}"
            print_json({**structs.asdict(result), "workers": {}}) if as_json else say(refused)
            return UNSUCCESSFUL
        until = time.monotonic() + WITHIN_S
        while "loading" in watch.outcomes(result.epoch).values() and time.monotonic() < until:
            _listen(watch, reports, 0.1)
    found = watch.outcomes(result.epoch)
    if as_json:
        print_json({**structs.asdict(result), "workers": found})
    else:
        print_text("\n".join([f"{result.message} (plan {result.epoch})", *_lines(found)]))
    return 0 if all(outcome == "reloaded" for outcome in found.values()) else UNSUCCESSFUL


def _listen(watch: ReloadWatch, reports: Tail, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watch.see(decoded(value) for value in reports.take(0.05))


def _lines(found: dict[str, str]) -> list[str]:
    if not found:
        return ["no worker has loaded it; the next worker that does runs the new code"]
    said = {"reloaded": "runs the new code", "loading": f"is still loading after {WITHIN_S:g} s"}
    return [f"{node} {said.get(how, f'still runs the earlier code: {how}')}"
            for node, how in found.items()]  # fmt: skip

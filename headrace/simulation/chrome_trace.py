"""Write a run's batches, loads, plans and queues in Chrome's trace format.

https://ui.perfetto.dev and chrome://tracing open the file. The writer is an observer.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from operators.outcomes import outcome_of
from schemas.effects import Effect, Event, Infer, Inferred, Loaded, Send
from schemas.records import Answer, Plan, Report

_PROCESS = 1  # a pipeline is the trace's process; its nodes are threads


class ChromeTrace:
    """Writes events as they come to a partial file, renamed to ``path`` when it is complete.

    Used as a context manager: after an error the partial file is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._threads: dict[str, int] = {}
        self._variants: dict[tuple[str, int], str] = {}
        self._outcomes: dict[str, int] = {}
        self._file: IO[str] | None = None

    def __enter__(self) -> "ChromeTrace":
        self._file = self._part.open("w", encoding="utf-8")
        self._file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
        self._write({"name": "process_name", "ph": "M", "args": {"name": "headrace"}}, "")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        assert self._file is not None
        if error is None:
            self._file.write("\n]}\n")
        self._file.close()
        if error is None:
            os.replace(self._part, self._path)
        else:
            with suppress(OSError):
                self._part.unlink()

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        if isinstance(event, Inferred):
            self._ran(node, event)
        elif isinstance(event, Loaded):
            began_s = now - event.seconds
            self._span(node, f"load {event.variant}", began_s, event.seconds, {})
        for effect in effects:
            if isinstance(effect, Infer):
                self._variants[node, effect.job] = effect.variant
            elif isinstance(effect, Send):
                self._sent(node, effect.record, now)

    def _ran(self, node: str, event: Inferred) -> None:
        variant = self._variants.pop((node, event.job), "batch")
        seconds = event.finished_s - event.started_s
        self._span(node, variant, event.started_s, seconds, {"items": len(event.outputs)})

    def _sent(self, node: str, record: Any, now: float) -> None:
        if isinstance(record, Plan):
            about = {"reason": record.reason, "demand_qps": record.demand_qps,
                     "workers": len(record.leases), "feasible": record.feasible}  # fmt: skip
            self._event(node, f"plan {record.epoch}", "i", now, {"s": "g", "args": about})
        elif isinstance(record, Report) and record.role == "worker":
            queued = sum(slot.queued for slot in record.slots)
            self._event(node, f"queue {node}", "C", now, {"args": {"items": queued}})
        elif isinstance(record, Answer):
            outcome = outcome_of(record)
            self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
            self._event(node, "outcomes", "C", now, {"args": dict(self._outcomes)})

    def _span(
        self, node: str, name: str, at_s: float, seconds: float, about: dict[str, Any]
    ) -> None:
        self._event(node, name, "X", at_s, {"dur": round(seconds * 1e6, 3), "args": about})

    def _event(self, node: str, name: str, kind: str, at_s: float, rest: dict[str, Any]) -> None:
        thread = self._threads.get(node)
        if thread is None:
            thread = self._threads[node] = len(self._threads) + 1
            self._write({"name": "thread_name", "ph": "M", "tid": thread, "args": {"name": node}})
        self._write({"name": name, "ph": kind, "ts": round(at_s * 1e6, 3), "tid": thread, **rest})

    def _write(self, event: dict[str, Any], before: str = ",\n") -> None:
        assert self._file is not None
        self._file.write(before + json.dumps({**event, "pid": _PROCESS}))

"""Record a simulated run per query and per second; write the records as CSV, JSON lines or
Parquet."""

import csv
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.errors import PipelineError
from headrace.results.tally import latency_ms
from headrace.results.time_series import Recorder, TimeSeries
from headrace.simulation.batch_runs import Row, of_all, on_all_cores
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import Advance, simulated
from operators.outcomes import outcome_of
from schemas.effects import RESULTS, Effect, Event, Send
from schemas.records import Answer
from schemas.variant_id import variant_key

SECOND_S = 1.0
FORMATS = (".csv", ".jsonl", ".parquet")


@dataclass(frozen=True, slots=True)
class Details:
    """A run's row, its queries in the order in which they ended, and its seconds."""

    row: Row
    queries: tuple[Row, ...]
    seconds: tuple[Row, ...]


class _Answers:
    """An observer that keeps every answer."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int], Answer] = {}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.topic == RESULTS:
                answer = effect.record
                assert isinstance(answer, Answer)
                # A query has one outcome: only the first answer counts.
                self.found.setdefault((answer.origin.partition, answer.origin.offset), answer)


def detailed(run: Run, advance: Advance) -> Details:
    """Play a run and record its queries and seconds."""
    answers, recorders = _Answers(), list[Recorder]()

    def watch(metrics: Any) -> Recorder:
        recorders.append(Recorder(metrics, SECOND_S))
        return recorders[-1]

    ended = simulated(run, advance, (answers,), watch)
    recording = recorders[0].recording(ended.first_s, ended.last_s)
    return Details(
        ended.as_json(run),
        tuple(_query(run, answer, ended.first_s) for answer in answers.found.values()),
        tuple(_seconds(run, recording)),
    )


def _query(run: Run, answer: Answer, first_s: float) -> Row:
    used = dict.fromkeys(
        variant_key(hop.task, hop.variant) for path in answer.paths for hop in path
    )
    return {
        "policy": run.policy, "seed": run.seed, "id": answer.id,
        "created_s": round(answer.created_s - first_s, 6),
        "answered_s": round(answer.answered_s - first_s, 6),
        "latency_ms": round(latency_ms(answer), 3), "outcome": str(outcome_of(answer)),
        "late": answer.late, "task": answer.task, "reason": answer.reason,
        "expected_accuracy": answer.expected_accuracy, "variants": " ".join(used),
    }  # fmt: skip


def _seconds(run: Run, recording: TimeSeries) -> list[Row]:
    columns = zip(
        recording.ends_s, recording.demand_qps, recording.capacity_qps, recording.devices,
        recording.accuracy, recording.violation, strict=True,
    )  # fmt: skip
    names = ("second", "demand_qps", "capacity_qps", "devices", "accuracy", "violation")
    who = {"policy": run.policy, "seed": run.seed}
    return [who | dict(zip(names, values, strict=True)) for values in columns]


def exported(
    asked: Sequence[Run],
    labels: Sequence[Mapping[str, Any]],
    queries: Path | None,
    seconds: Path | None,
) -> list[Row]:
    """Play all runs as ``rows`` does, and write their queries and seconds to files, each row after
    its run's label."""
    for path in (queries, seconds):
        if path is not None:
            check_format(path)
    found = on_all_cores(detailed, asked, "simulating")
    if queries is not None:
        write_rows(queries, of_all(labels, [each.queries for each in found]))
    if seconds is not None:
        write_rows(seconds, of_all(labels, [each.seconds for each in found]))
    return [each.row for each in found]


def check_format(path: Path) -> None:
    """Raise ``PipelineError`` if the file's format is unknown or its folder does not exist."""
    if path.suffix not in FORMATS:
        raise PipelineError(f"{path}: rows are written as {' or '.join(FORMATS)}; name such a file")
    if not path.resolve().parent.is_dir():
        raise PipelineError(f"{path}: there is no folder {path.resolve().parent}; create it")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise PipelineError(
            f"{path}: Parquet needs pyarrow, which is not installed; install it "
            "(pip install pyarrow) or name a .csv or .jsonl file"
        )


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write records as CSV with a header, as JSON lines or as Parquet, by the file's suffix."""
    if path.suffix == ".parquet":
        _write_parquet(path, rows)
        return
    with path.open("w", encoding="utf-8", newline="") as out:
        if path.suffix == ".csv":
            writer = csv.DictWriter(out, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)
        else:
            out.writelines(f"{json.dumps(row)}\n" for row in rows)


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    # Not a dependency: 120 MB for one format of a file.
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist([dict(row) for row in rows]), path)

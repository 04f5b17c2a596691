"""The RAMSIS artifact's models and trace in Headrace's formats.

    python -m benchmarks.papers.ramsis DATA_DIR OUT_DIR [--compare [PAGE]]

Writes ``image.yaml`` (9 models, 150 ms, 60 workers) and ``text.yaml`` (5 models, 100 ms, 20
workers), each with its profile: the one latency per batch that the paper plans and simulates
with, so every quantile is that one. Writes ``twitter.csv``, the trace as it was recorded (270 s),
and ``twitter-300s.csv``, as the artifact runs it: 261 s, begun anew for the 39 s that are left.
``--compare`` then plays the paper's comparison and ours (``ramsis_compare``, ``ramsis_nodes``) and
writes the page, docs/results/ramsis.md; ``--again`` writes it from what OUT_DIR has of the last
time.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.papers.ramsis_compare import LOADS, Cluster, Row, at_constant_load, on_trace
from benchmarks.papers.ramsis_nodes import by_nodes
from benchmarks.papers.ramsis_page import page
from benchmarks.papers.sources import DataError, table
from control.policies.ramsis.pareto_models import CandidateModel, planned
from profiles.profile_table import EMULATED, Entry, Latency, ProfileTable

PAPER = "RAMSIS"

# Emulated devices never call it; it is there so that the pipeline is whole.
OPERATOR = "operators.models.python:Python"
ARGUMENTS = '{function: "builtins:bytes"}'
SOURCE = "github.com/dmmendo/RAMSIS at 9b74967 (doi 10.1145/3627703.3629565), planning p95"
LOOPED_S, RUN_S = 261, 300  # the artifact's loader ends the last ten seconds after one
TRACE_WORKERS = (60, 70, 80)
PAGE = Path("docs/results/ramsis.md")


@dataclass(frozen=True, slots=True)
class Family:
    """One of the paper's two tasks, by the name its files begin with."""

    name: str
    slo_ms: int
    workers: int


FAMILIES = (Family("image", 150, 60), Family("text", 100, 20))


def write(data: Path, out: Path) -> list[Path]:
    """Write all files; raises ``DataError`` where a file of the data is missing or lacks a row."""
    out.mkdir(parents=True, exist_ok=True)
    written = [path for family in FAMILIES for path in _family(data, out, family)]
    return [*written, *_trace(data, out)]


def entries(data: Path, family: str) -> tuple[Entry, ...]:
    """The profile of the models that the paper's scripts use, in the order of the accuracy file."""
    accuracies = table(data / f"{family}_accuracy.csv", PAPER)
    latencies = table(data / f"{family}_latency.csv", PAPER)
    return tuple(
        Entry(
            task="classify",
            variant=row["model"],
            device=EMULATED,
            operator=OPERATOR,
            weights_sha256="",
            load_s=0.0,  # every worker holds all of them
            memory_bytes=0,
            accuracy=float(row["accuracy_pct"]) / 100,
            children={},
            latency=_latency([line for line in latencies if line["model"] == row["model"]]),
        )
        for row in accuracies
        if row["in_ramsis_set"] == "1"
    )


def _latency(rows: Sequence[dict[str, str]]) -> tuple[Latency, ...]:
    def of(row: dict[str, str]) -> Latency:
        seconds = float(row["plan_p95_ms"]) / 1e3
        return Latency(
            batch=int(row["batch"]),
            repeats=max(int(row["n_reps"] or 0), 1),
            mean_s=seconds,
            p50_s=seconds,
            p90_s=seconds,
            p95_s=seconds,
            p99_s=seconds,
        )

    return tuple(sorted((of(row) for row in rows), key=lambda latency: latency.batch))


def _family(data: Path, out: Path, family: Family) -> list[Path]:
    measured = entries(data, family.name)
    profile, pipeline = out / f"{family.name}.profile.json", out / f"{family.name}.yaml"
    table = ProfileTable(family.name, measured, {"source": SOURCE})
    profile.write_text(table.to_json(), encoding="utf-8")
    pipeline.write_text(_yaml(family, measured, profile.name), encoding="utf-8")
    return [pipeline, profile]


def _yaml(family: Family, measured: Sequence[Entry], profile: str) -> str:
    variants = "".join(
        f"      {entry.variant}:\n"
        f"        operator: {OPERATOR}\n"
        f"        arguments: {ARGUMENTS}\n"
        f"        batch: {entry.largest}\n"
        for entry in measured
    )
    return (
        f"# The {family.name} models of the RAMSIS artifact; all of them are on every worker.\n"
        f"name: ramsis-{family.name}\n"
        f"slo: {family.slo_ms}ms\n"
        f"tasks:\n  classify:\n    slots: 128\n    variants:\n{variants}"
        f"cluster:\n  devices: {{emulated: {family.workers}}}\n"
        f"profiles: [{profile}]\n"
    )


def _trace(data: Path, out: Path) -> list[Path]:
    recorded = [row["qps"] for row in table(data / "twitter_trace.csv", PAPER)]
    if len(recorded) < LOOPED_S:
        raise DataError(f"twitter_trace.csv has {len(recorded)} s; {LOOPED_S} are wanted")
    looped = [recorded[second % LOOPED_S] for second in range(RUN_S)]
    written = []
    for name, rates in (("twitter.csv", recorded), ("twitter-300s.csv", looped)):
        lines = "".join(f"{second},{qps}\n" for second, qps in enumerate(rates))
        (out / name).write_text("second,qps\n" + lines, encoding="utf-8")
        written.append(out / name)
    return written


def cluster(data: Path, family: str, slo_s: float, workers: int) -> Cluster:
    """The paper's models on so many workers, fastest first."""
    models = (
        planned(
            CandidateModel(each.variant, each.accuracy, tuple(row.p95_s for row in each.latency))
        )
        for each in entries(data, family)
    )
    by_speed = sorted(models, key=lambda model: model.latency_s[0])
    return Cluster(models=tuple(by_speed), slo_s=slo_s, workers=workers)


@dataclass(frozen=True, slots=True)
class Seeds:
    """How many of each."""

    constant: int
    trace: int
    nodes: int


def compared(data: Path, out: Path, seeds: Seeds) -> Iterator[Row]:
    """The comparison: constant loads with 60 workers, and the trace as the artifact runs it.

    ``out`` has the files that ``write`` writes.
    """
    sixty = cluster(data, "image", 0.15, 60)
    yield from at_constant_load(sixty, LOADS, seeds.constant, _tell)
    yield from by_nodes(out / "image.yaml", sixty, LOADS, seeds.nodes, _tell)
    recorded = [float(row["qps"]) for row in table(data / "twitter_trace.csv", PAPER)]
    rates = [recorded[second % LOOPED_S] for second in range(RUN_S)]
    for workers in TRACE_WORKERS if seeds.trace else ():
        yield from on_trace(cluster(data, "image", 0.15, workers), rates, seeds.trace, _tell)


def _tell(what: str) -> None:
    print(f"playing: {what}", file=sys.stderr)


def compare(data: Path, out: Path, seeds: Seeds, again: bool) -> str:
    """Play, unless ``again``, and keep what came of it in OUT_DIR; the page."""
    kept = out / "comparison.json"
    if not again:
        rows = [asdict(row) for row in compared(data, out, seeds)]
        kept.write_text(json.dumps(rows), encoding="utf-8")
    try:
        found = json.loads(kept.read_text(encoding="utf-8"))
        return page([Row(**row) for row in found])
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{kept} holds no comparison ({error}); leave out --again") from error


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--compare", nargs="?", type=Path, const=PAGE, metavar="PAGE")
    parser.add_argument("--again", action="store_true", help="only write the page once more")
    for name, count in (("seeds", 20), ("trace-seeds", 5), ("node-seeds", 3)):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"({count})")
    options = parser.parse_args()
    seeds = Seeds(options.seeds, options.trace_seeds, options.node_seeds)
    try:
        for path in write(options.data, options.out):
            print(path)
        if options.compare is not None:
            told = compare(options.data, options.out, seeds, options.again)
            options.compare.write_text(told, encoding="utf-8")
            print(options.compare)
    except DataError as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()

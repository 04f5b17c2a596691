"""Write the RAMSIS artifact's models and trace in Headrace's formats.

    python -m benchmarks.papers.ramsis DATA_DIR OUT_DIR [--compare [PAGE]]

Writes ``image.yaml`` (9 models, 150 ms, 60 workers) and ``text.yaml`` (5 models, 100 ms, 20
workers), each with its profile: the paper plans and simulates with one latency per batch, so
every quantile equals it. Writes ``twitter.csv``, the trace as recorded (270 s), and
``twitter-300s.csv``, the trace as the artifact runs it: 261 s, then its first 39 s again.
``--compare`` then runs the paper's comparison and ours (``ramsis_compare``, ``ramsis_nodes``) and
writes the page docs/results/ramsis.md. OUT_DIR keeps the results of each part, so an interrupted
run resumes with the missing part, if the commit and the seeds are the same.
``--again`` writes the page from earlier results in OUT_DIR.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.commit import commit
from benchmarks.papers.ramsis_compare import LOADS, Row, at_constant_load, on_trace
from benchmarks.papers.ramsis_nodes import by_nodes
from benchmarks.papers.ramsis_page import page
from benchmarks.papers.ramsis_trials import Cluster
from benchmarks.papers.sources import DataError, table
from benchmarks.row_file import RowFile, RowFileError
from control.policies.ramsis.pareto_models import CandidateModel, monotone
from profiles.measurements import EMULATED, Entry, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable

PAPER = "RAMSIS"

# Emulated devices never call the operator, but a pipeline file must name one.
OPERATOR = "operators.models.python:Python"
ARGUMENTS = '{function: "builtins:bytes"}'
SOURCE = "github.com/dmmendo/RAMSIS at 9b74967 (doi 10.1145/3627703.3629565), planning p95"
LOOPED_S, RUN_S = 261, 300  # the artifact's loader ends the last ten seconds after one
TRACE_WORKERS = (60, 70, 80)
PAGE = Path("docs/results/ramsis.md")


@dataclass(frozen=True, slots=True)
class Family:
    """One of the paper's two tasks, by the prefix of its files."""

    name: str
    slo_ms: int
    workers: int


FAMILIES = (Family("image", 150, 60), Family("text", 100, 20))


def write(data: Path, out: Path) -> list[Path]:
    """Write all files; return their paths. Raises ``DataError`` for a missing file or row."""
    out.mkdir(parents=True, exist_ok=True)
    written = [path for family in FAMILIES for path in _family(data, out, family)]
    return [*written, *_trace(data, out)]


def entries(data: Path, family: str) -> tuple[Entry, ...]:
    """Return the profile of the models in the paper's scripts, ordered as the accuracy file."""
    accuracies = table(data / f"{family}_accuracy.csv", PAPER)
    latencies = table(data / f"{family}_latency.csv", PAPER)
    return tuple(
        Entry(
            task="classify",
            variant=row["model"],
            device=EMULATED,
            operator=OPERATOR,
            weights_sha256="",
            load_s=0.0,  # every worker holds all models
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
    profile.write_text(profile_text(table), encoding="utf-8")
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
    """Return a cluster of ``workers`` with the paper's models, fastest first."""
    models = (
        monotone(
            CandidateModel(each.variant, each.accuracy, tuple(row.p95_s for row in each.latency))
        )
        for each in entries(data, family)
    )
    by_speed = sorted(models, key=lambda model: model.latency_s[0])
    return Cluster(models=tuple(by_speed), slo_s=slo_s, workers=workers)


@dataclass(frozen=True, slots=True)
class Seeds:
    """Number of seeds of each experiment."""

    constant: int
    trace: int
    nodes: int


Play = Callable[[], Iterable[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The rows of one part, of the run of a commit with these seeds."""

    name: str
    commit: str
    seeds: Seeds
    rows: tuple[Row, ...]

    @property
    def run(self) -> tuple[str, Seeds]:
        """The run that the part belongs to: its commit and seeds."""
        return self.commit, self.seeds


def parts(data: Path, out: Path, seeds: Seeds) -> Iterator[tuple[str, Play]]:
    """Yield the parts of the comparison by name: each constant load with 60 workers, bare and by
    the nodes, and the trace as the artifact runs it.

    ``out`` must have the files of ``write``.
    """
    sixty = cluster(data, "image", 0.15, 60)
    for qps in LOADS:
        yield f"constant {qps}", partial(at_constant_load, sixty, [qps], seeds.constant, _tell)
    for qps in LOADS if seeds.nodes else ():
        image = out / "image.yaml"
        yield f"nodes {qps}", partial(by_nodes, image, sixty, qps, seeds.nodes, _tell)
    recorded = [float(row["qps"]) for row in table(data / "twitter_trace.csv", PAPER)]
    rates = [recorded[second % LOOPED_S] for second in range(RUN_S)]
    for workers in TRACE_WORKERS if seeds.trace else ():
        held = cluster(data, "image", 0.15, workers)
        yield f"trace {workers}", partial(on_trace, held, rates, seeds.trace, _tell)


def _tell(what: str) -> None:
    print(f"playing: {what}", file=sys.stderr)


def compare(data: Path, out: Path, seeds: Seeds, again: bool) -> str:
    """Run the parts that OUT_DIR does not have, or none if ``again``; return the page."""
    record = recorded(out)
    wanted = list(parts(data, out, seeds))
    done = last_run(record) if again else played(record, seeds, wanted)
    rows = [row for part in done.values() for row in part.rows]
    missing = [name for name, _ in wanted if name not in done]
    return page(rows, next(iter(done.values())).commit, missing)


def recorded(out: Path) -> RowFile[Part]:
    """Return the file of the parts that have ended."""
    return RowFile(out / "parts.jsonl", Part)


def last_run(record: RowFile[Part]) -> dict[str, Part]:
    """Return the parts of the run that recorded one last. Raises ``DataError`` if there is none."""
    found = record.read()
    if not found:
        raise DataError(f"{record.path} has no part of a comparison; leave out --again")
    return {part.name: part for part in found if part.run == found[-1].run}


def played(
    record: RowFile[Part], seeds: Seeds, wanted: Iterable[tuple[str, Play]]
) -> dict[str, Part]:
    """Play and record the wanted parts that this commit's run lacks; return all of its parts."""
    run = commit(), seeds
    done = {part.name: part for part in record.read() if part.run == run}
    for name, play in wanted:
        if name not in done:
            done[name] = Part(name=name, commit=run[0], seeds=seeds, rows=tuple(play()))
            record.append(done[name])
    return done


def main() -> None:
    """Write the files; compare if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--compare", nargs="?", type=Path, const=PAGE, metavar="PAGE")
    parser.add_argument("--again", action="store_true", help="only write the page again")
    for name, count in (("seeds", 20), ("trace-seeds", 5), ("node-seeds", 10)):
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
    except (DataError, RowFileError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()

"""Write Loki's two pipelines, with its simulator's profiles, in Headrace's formats.

    python -m benchmarks.papers.loki DATA_DIR OUT_DIR [--compare] [--page docs/results/loki.md]

Writes files; with ``--compare`` it then runs the paper's comparison on them (``loki_compare.py``),
records its rows in OUT_DIR/rows.jsonl and continues there if it is started again; ``--page`` writes
the page of all recorded rows. ``traffic.yaml`` and ``social.yaml`` are the paper's full trees;
``*-as-coded.yaml`` are the reduced problems that the authors' code solves: traffic without the
facial branch, social with untied branches and bounds on captioning's share, both without latency
between tasks. Each has its profile: p50 at batches 1, 2, 4 .. 64, the only quantile that Loki plans
and simulates with, so every quantile equals it. ``*-varying.yaml`` have the measured quantiles.
``*-arrivals.txt.gz`` are the arrivals that the baselines were measured with, ``*.csv`` the rates
that they were drawn from.
"""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from benchmarks.papers.loki_compare import SCENES, compare, recorded
from benchmarks.papers.loki_page import page
from benchmarks.papers.sources import DataError, table, unreadable
from benchmarks.row_file import RowFileError
from profiles.measurements import EMULATED, Entry, FanOut, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable

PAPER = "Loki"

# Emulated devices never call the operator, but a pipeline file must name one.
OPERATOR = "operators.models.python:Python"
ARGUMENTS = '{function: "builtins:bytes"}'
SOURCE = "github.com/UMass-LIDS/Loki at e6bb80c, simulator profile"
BATCHES = (1, 2, 4, 8, 16, 32, 64)
LEFT_OUT = ("yolov5s", "efficientnet-b7")  # as in the authors' code
DETECT, CARS, FACES = "object_detection", "car_classification", "facial_recognition"
SOURCE_TASK, CAPTION = "source", "image_captioning"
PER_QUERY = {CARS: "code_car_per_query", FACES: "code_face_per_query"}
SHARES = {CARS: "car_classification_per_query", FACES: "facial_recognition_per_query"}
DEVICES = 20

# Stand-in traces: name here -> name in the data.
TRACES = {
    "traffic-1440s": "standin_traffic_maf_1440s",
    "traffic-288s": "standin_traffic_maf_288s",
    "social-291s": "standin_social_twitter_291s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A pipeline file: tasks with children, root first, and additional lines."""

    name: str
    about: str
    tasks: Mapping[str, Sequence[str]]
    fan_out: Mapping[tuple[str, str], FanOut]  # variant, child
    extra: str = ""
    task_extra: Mapping[str, str] | None = None


def write(data: Path, out: Path) -> list[Path]:
    """Write all files; return their paths. Raises ``DataError`` for a missing file or row."""
    out.mkdir(parents=True, exist_ok=True)
    p50, measured, accuracies = (
        _latencies(data, _p50),
        _latencies(data, _varying),
        _accuracies(data),
    )
    written: list[Path] = []
    for pipeline in (*_traffic(data), *_social()):
        written += _files(out, pipeline, _entries(pipeline, p50, accuracies))
        varying = replace(pipeline, name=f"{pipeline.name}-varying")
        written += _files(out, varying, _entries(pipeline, measured, accuracies))
    return [*written, *_traces(data, out)]


def _files(out: Path, pipeline: Written, entries: tuple[Entry, ...]) -> tuple[Path, Path]:
    """Write the pipeline file and its profile; return their paths."""
    table = ProfileTable(pipeline.name, entries, {"source": SOURCE})
    profile = out / f"{pipeline.name}.profile.json"
    profile.write_text(profile_text(table), encoding="utf-8")
    path = out / f"{pipeline.name}.yaml"
    path.write_text(_yaml(pipeline, entries, profile.name), encoding="utf-8")
    return path, profile


def _traffic(data: Path) -> tuple[Written, Written]:
    fan_out = {
        (row["detector"], child): FanOut(
            float(row[PER_QUERY[child]]),
            # 5000-frame means rounded up, as for the measured baselines (the data's README).
            {ceil(float(row[SHARES[child]])): 1.0},
        )
        for row in table(data / "branching_traffic.csv", PAPER)
        for child in PER_QUERY
    }
    full = Written(
        name="traffic",
        about="Loki's traffic analysis: cars are classified, persons' gender recognised.",
        tasks={DETECT: (CARS, FACES), CARS: (), FACES: ()},
        fan_out=fan_out,
    )
    coded = replace(
        full,
        name="traffic-as-coded",
        about="Loki's traffic analysis as its code plans it: without the facial branch.",
        tasks={DETECT: (CARS,), CARS: ()},
        extra="comm: 0ms\n",
    )
    return full, coded


def _social() -> tuple[Written, Written]:
    tasks = {SOURCE_TASK: (DETECT, CAPTION), DETECT: (), CAPTION: ()}
    full = Written(
        name="social",
        about="Loki's social media: every post is searched for objects and captioned.",
        tasks=tasks,
        fan_out={(SOURCE_TASK, child): FanOut(1.0, {1: 1.0}) for child in (DETECT, CAPTION)},
    )
    coded = replace(
        full,
        name="social-as-coded",
        about="Loki's social media as its code plans it: each post takes one of the branches.",
        fan_out={
            (SOURCE_TASK, child): FanOut(1.0, {0: 0.5, 1: 0.5}) for child in (DETECT, CAPTION)
        },
        extra="comm: 0ms\nbranches: untied\n",
        task_extra={CAPTION: "    share: [0.3, 0.7]\n"},
    )
    return full, coded


def _entries(
    pipeline: Written,
    latencies: Mapping[tuple[str, str], tuple[Latency, ...]],
    accuracies: Mapping[tuple[str, str], float],
) -> tuple[Entry, ...]:
    return tuple(
        Entry(
            task=task,
            variant=variant,
            device=EMULATED,
            operator=OPERATOR,
            weights_sha256="",
            load_s=0.0,
            memory_bytes=0,
            accuracy=accuracies[task, variant],
            children={child: pipeline.fan_out[variant, child] for child in children},
            latency=latency,
        )
        for task, children in pipeline.tasks.items()
        for (of_task, variant), latency in latencies.items()
        if of_task == task
    )


def _latencies(
    data: Path, latency: Callable[[Mapping[str, str]], Latency]
) -> dict[tuple[str, str], tuple[Latency, ...]]:
    """Return the rows of the profile that the authors' code uses."""
    found: dict[tuple[str, str], tuple[Latency, ...]] = {}
    for row in table(data / "latency_simulator.csv", PAPER):
        key = (row["task"], row["variant"])
        if int(row["batch_size"]) in BATCHES and row["variant"] not in LEFT_OUT:
            found[key] = (*found.get(key, ()), latency(row))
    return {key: tuple(sorted(rows, key=lambda row: row.batch)) for key, rows in found.items()}


def _p50(row: Mapping[str, str]) -> Latency:
    return _latency(row, ("p50",) * 4)


def _varying(row: Mapping[str, str]) -> Latency:
    """Return the row's quantiles; p99 was not measured and equals p95.

    A mean above p95 is the work of the first, cold run, and the median stands for it.
    """
    mean = "mean" if _s(row, "mean") <= _s(row, "p95") else "p50"
    return _latency(row, (mean, "p50", "p90", "p95"))


def _latency(row: Mapping[str, str], quantiles: Sequence[str]) -> Latency:
    mean, p50, p90, p95 = (_s(row, each) for each in quantiles)
    batch = int(row["batch_size"])
    return Latency(
        batch=batch, repeats=1, mean_s=mean, p50_s=p50, p90_s=p90, p95_s=p95, p99_s=p95
    )  # fmt: skip


def _s(row: Mapping[str, str], quantile: str) -> float:
    return float(row[f"latency_{quantile}_ms"]) / 1e3


def _accuracies(data: Path) -> dict[tuple[str, str], float]:
    return {
        (row["task"], row["variant"]): float(row["accuracy_pct_normalised"]) / 100
        for row in table(data / "accuracy_variants.csv", PAPER)
    }


def _yaml(pipeline: Written, entries: Sequence[Entry], profile: str) -> str:
    tasks = ""
    for task, children in pipeline.tasks.items():
        tasks += f"  {task}:\n"
        tasks += f"    children: [{', '.join(children)}]\n" if children else ""
        tasks += (pipeline.task_extra or {}).get(task, "")
        tasks += "    slots: 32\n    variants:\n"
        tasks += "".join(
            f"      {entry.variant}:\n"
            f"        operator: {OPERATOR}\n"
            f"        arguments: {ARGUMENTS}\n"
            f"        batch: {entry.largest}\n"
            for entry in entries
            if entry.task == task
        )
    return (
        f"# {pipeline.about}\n"
        f"name: loki-{pipeline.name}\n"
        f"slo: 250ms\n{pipeline.extra}"
        f"tasks:\n{tasks}"
        f"policy: loki-paper\n"
        f"cluster:\n  devices: {{emulated: {DEVICES}}}\n"
        f"profiles: [{profile}]\n"
    )


def _traces(data: Path, out: Path) -> list[Path]:
    written = []
    for name, source in TRACES.items():
        rates = table(data / "demand" / f"{source}.csv", PAPER)
        lines = "".join(f"{row['second']},{row['target_rate_qps']}\n" for row in rates)
        (out / f"{name}.csv").write_text("second,qps\n" + lines, encoding="utf-8")
        arrivals = data / "demand" / f"{source}_arrivals_ms.txt.gz"
        try:
            shutil.copyfile(arrivals, out / f"{name}-arrivals.txt.gz")
        except OSError as error:
            raise unreadable(arrivals, error, PAPER) from error
        written += [out / f"{name}.csv", out / f"{name}-arrivals.txt.gz"]
    return written


def main() -> None:
    """Write the files; compare and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--compare", action="store_true", help="play what is not recorded yet")
    parser.add_argument("--scene", nargs="+", choices=tuple(SCENES), default=tuple(SCENES))
    parser.add_argument("--seeds", type=int, default=3, help="(3)")
    parser.add_argument("--page", type=Path, help="write docs/results/loki.md here")
    options = parser.parse_args()
    try:
        for path in write(options.data, options.out):
            print(path)
        if options.compare:
            for row in compare(options.out, options.scene, options.seeds):
                print(row, flush=True)
        if options.page is not None:
            if not (rows := recorded(options.out).read()):
                raise DataError(f"{options.out} has no run to show; add --compare")
            options.page.write_text(page(rows), encoding="utf-8")
            print(options.page)
    except (DataError, RowFileError) as error:
        parser.exit(2, f"{error}\n")


if __name__ == "__main__":
    main()

"""Load from the terminal: send arrivals and inputs in an open loop and summarise the outcomes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import Any

import click
import numpy as np

from headrace.arrivals.arrival_processes import Recorded, Times, poisson, read_workload
from headrace.broker.connect import reached
from headrace.cells import ms, percent
from headrace.client.open_loop import Inputs, OpenLoop, run_to_end
from headrace.client.topic_clients import new_id
from headrace.config.pipeline_file import PipelineFile, load_workload
from headrace.config.sizes_file import read_sizes
from headrace.results.tally import Tally, tally
from headrace.terminal import progress
from streams.kafka.preflight import prepare

DISTINCT = 2000  # inputs generated in advance: generating one takes longer than sending it


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """The outcomes of a load, with its length, seed and number of inputs."""

    tally: Tally
    seconds: float
    behind_ms: float
    seed: int
    inputs: int  # distinct ones


def loaded(file: PipelineFile, asked: Mapping[str, Any]) -> LoadResult:
    """Send the load that the options describe, wait for the answers and return the outcomes."""
    rng = np.random.default_rng(asked["seed"])
    times, sizes = arrivals(asked, rng)
    if not sizes:
        sizes = drawn_sizes(file, asked.get("sizes"), len(times), rng)
    workload = None if asked["payload"] else load_workload(file)
    if workload is None:
        inputs: list[tuple[bytes, Any]] = [(asked["payload"].read(), None)]
    else:
        inputs = made(workload.queries(rng), min(DISTINCT, len(times)))
    kafka = reached(asked["bootstrap"])
    prepare(kafka, file.pipeline, "producer", "consumer")
    loop = OpenLoop(
        kafka,
        file.pipeline,
        new_id("load"),
        deadline_s=asked["deadline"],
        slo_class=asked["slo_class"],
    )
    try:
        _run(loop, times, cycle(inputs), sizes)
        sent, answers = loop.accounts()
    finally:
        loop.close()
    score = None if workload is None else workload.score
    return LoadResult(
        tally=tally(sent, answers, score),
        seconds=float(times[-1]) if len(times) else 0.0,
        behind_ms=loop.behind_s * 1e3,
        seed=asked["seed"],
        inputs=len(inputs),
    )


def arrivals(asked: Mapping[str, Any], rng: np.random.Generator) -> tuple[Times, tuple[int, ...]]:
    """Return the arrival times that the options describe, and the sizes if the file has them.

    Raises ``click.UsageError``.
    """
    if asked["arrivals"] is not None:
        if asked["rate"] or asked["seconds"]:
            raise click.UsageError("--arrivals has its own rate and length; leave the others out")
        read = read_workload(asked["arrivals"])
        return read.drawn(rng), read.sizes if isinstance(read, Recorded) else ()
    if asked["rate"] is None or asked["seconds"] is None:
        raise click.UsageError("give --rate and --seconds, or --arrivals")
    return poisson(asked["rate"], asked["seconds"], rng), ()


def drawn_sizes(
    file: PipelineFile, named: Path | None, count: int, rng: np.random.Generator
) -> tuple[int, ...]:
    """Draw ``count`` query sizes from the distribution in ``named`` or of the pipeline file.

    Returns () if queries have no sizes. Raises ``PlanError`` and ``SizesError``.
    """
    if file.pipeline.size is None:
        return ()
    sizes, _ = read_sizes(file, named)
    drawn = rng.choice(sizes.sizes, size=count, p=sizes.probabilities)
    return tuple(int(size) for size in drawn)


def made(queries: Iterator[tuple[bytes, Any]], count: int) -> list[tuple[bytes, Any]]:
    """Generate ``count`` inputs in advance, so that generation does not delay sending."""
    found = []
    with progress("making inputs", count) as advance:
        for done, query in enumerate(islice(queries, count), 1):
            found.append(query)
            advance(done, "")
    return found


def _run(loop: OpenLoop, times: Times, inputs: Inputs, sizes: Sequence[int]) -> None:
    with progress("sending", len(times)) as advance:
        loop.start(times.tolist(), inputs, iter(sizes) if sizes else repeat(1))
        run_to_end(loop, lambda: advance(loop.sent, f"{len(loop.answers)} answers"))


def load_row(load: LoadResult) -> dict[str, Any]:
    """Return the outcomes as a JSON row."""
    return {
        **load.tally.as_json(),
        "seconds": round(load.seconds, 3),
        "behind_ms": round(load.behind_ms, 3),
        "seed": load.seed,
        "distinct_inputs": load.inputs,
        "reasons": dict(load.tally.reasons),
    }


def load_text(row: Mapping[str, Any]) -> str:
    """Return the outcomes as text."""
    lines = [
        f"{row['queries']} queries in {row['seconds']:.1f} s: " + outcomes_text(row),
        f"SLO attainment {percent(row['slo_attainment'])}; latency p50 {ms(row['p50_ms'])}, "
        f"p95 {ms(row['p95_ms'])}, p99 {ms(row['p99_ms'])}",
    ]
    if "accuracy" in row:
        lines.append(
            f"accuracy {percent(row['accuracy'])} of parts, {percent(row['accuracy_whole'])} whole"
        )
    lines += [f"  {count} x {reason}" for reason, count in list(row["reasons"].items())[:10]]
    return "\n".join(lines)


def outcomes_text(row: Mapping[str, Any]) -> str:
    """Return the counts of the outcomes in words."""
    names = ("answered", "late", "dropped", "failed", "refused", "lost")
    return ", ".join(f"{row[name]} {name}" for name in names)

"""Measure Headrace's overhead over Kafka: two no-op stages, against a bare relay.

    python -m benchmarks.overhead [--json] [--rounds 3] [--seconds 10]

Both serve the same records on the same broker, alternating in each round: at 50 and at 200
queries/s, and flat out. Headrace runs ingress, a worker per stage, egress and the control app, each
as a process. The relay (benchmarks/relay.py) only passes records on. Ratios are taken per round, so
that drift of the machine affects both.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.handle import figures as handle_figures
from benchmarks.load import Load, Offered, offer
from benchmarks.load import Path as Way
from benchmarks.machine_speed import machine, machine_line
from benchmarks.relay import RelayFigures, measure_relay
from headrace.broker.local_broker import Running, borrow
from headrace.config.pipeline_file import read_pipeline_file
from schemas.effects import QUERIES, RESULTS
from streams.kafka.admin.topic_admin import ensure_topics, partitions
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import physical, topics

FILE = Path(__file__).parent / "pipelines" / "noop.yaml"
ROLES = {
    "ingress": ["ingress"],
    "worker_a": ["worker", "--name", "worker-a", "--device", "cpu"],
    "worker_b": ["worker", "--name", "worker-b", "--device", "cpu"],
    "egress": ["egress"],
    "control": ["control"],
}
RATES: dict[str, float | None] = {"50": 50.0, "200": 200.0, "flat": None}


@dataclass(slots=True)
class Series:
    """One figure of relay and Headrace, per round."""

    relay: list[float] = field(default_factory=list)
    headrace: list[float] = field(default_factory=list)


@contextmanager
def serving(
    bootstrap: str,
    logs: Path,
    file: Path = FILE,
    roles: Mapping[str, Sequence[str]] = ROLES,
) -> Iterator[dict[str, int]]:
    """Run a pipeline's roles (command and arguments by name) during the block; yield their process
    ids by role."""
    processes = {}
    try:
        for role, command in roles.items():
            line = [sys.executable, "-m", "headrace", command[0], str(file), *command[1:]]
            with (logs / f"{role}.log").open("wb") as log:
                processes[role] = subprocess.Popen(
                    [*line, "--bootstrap", bootstrap], stdout=log, stderr=log
                )
        yield {role: process.pid for role, process in processes.items()}
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait(30)


def measure_headrace(
    bootstrap: str, load: Load, pids: dict[str, int], broker: int, pipeline: str = "noop"
) -> Offered:
    """Offer the load to the pipeline. Raises TimeoutError if no query is answered."""
    config = KafkaConfig(bootstrap)
    way = Way(
        entry=physical(pipeline, QUERIES),
        exit=physical(pipeline, RESULTS),
        exit_partitions=partitions(config)[physical(pipeline, RESULTS)],
        headers=lambda query: [("headrace-id", query)],
    )
    watched = {role: [pid] for role, pid in pids.items()}
    return offer(config, way, load, {**watched, "broker": [broker]})


def run(running: Running, rounds: int, seconds: float, logs: Path) -> dict[str, Series]:
    """Measure every figure; return them by their names in the JSON."""
    config = KafkaConfig(running.bootstrap)
    ensure_topics(config, topics(read_pipeline_file(FILE).pipeline))
    found: dict[str, Series] = {}
    for number in range(rounds):
        for name, rate in RATES.items():
            say(f"round {number + 1} of {rounds}: {name if rate is None else name + '/s'}")
            relay = measure_relay(running.bootstrap, rate, seconds, broker_pid=running.pid)
            with serving(running.bootstrap, logs) as pids:
                load = Load(rate=rate, seconds=seconds)
                seen = measure_headrace(running.bootstrap, load, pids, running.pid)
            for figure, of_relay, of_headrace in pairs(name, relay, seen):
                series = found.setdefault(figure, Series())
                series.relay += [] if of_relay is None else [of_relay]
                series.headrace.append(of_headrace)
    return found


def pairs(name: str, relay: RelayFigures, seen: Offered) -> list[tuple[str, float | None, float]]:
    """Return (figure, relay, Headrace) of one measurement; flat out has no suffix."""
    end = "" if name == "flat" else f"_{name}"
    cpu = seen.cpu_ms_per_query
    ours = sum(cpu[role] for role in ROLES)
    return [
        (f"qps{end}", relay.qps, seen.qps),
        (f"p50_ms{end}", relay.p50_ms, seen.p50_ms),
        (f"p99_ms{end}", relay.p99_ms, seen.p99_ms),
        (f"cpu_ms_per_query{end}", relay.cpu_ms_per_query, ours),
        (f"broker_cpu_ms_per_query{end}", relay.broker_cpu_ms_per_query, cpu["broker"]),
        (f"unanswered{end}", relay.sent - relay.answered, seen.sent - seen.answered),
        *((f"cpu_ms_per_query_{role}{end}", None, cpu[role]) for role in ROLES),
    ]


def summary(found: dict[str, Series]) -> dict[str, float]:
    """Return medians and spreads of both, and the median of the ratios per round."""
    flat: dict[str, float] = {}
    for name, series in found.items():
        # Headrace's own CPU figures have no prefix.
        ours = name if name.startswith("cpu_ms") else f"headrace_{name}"
        flat[ours] = statistics.median(series.headrace)
        flat[f"{ours}_min"], flat[f"{ours}_max"] = min(series.headrace), max(series.headrace)
        if series.relay:
            flat[f"relay_{name}"] = statistics.median(series.relay)
            flat[f"relay_{name}_min"] = min(series.relay)
            flat[f"relay_{name}_max"] = max(series.relay)
        if len(series.relay) == len(series.headrace) and all(series.relay):
            suffix = next((e for e in ("_50", "_200") if name.endswith(e)), "")
            key = name.removesuffix(suffix).replace("_ms", "") + "_ratio" + suffix
            both = zip(series.headrace, series.relay, strict=True)
            flat[key] = statistics.median(h / r for h, r in both)
    return flat


def report(flat: dict[str, float]) -> str:
    """Return the figures as text."""
    lines = []
    for end, title in (("_50", "50/s"), ("_200", "200/s"), ("", "flat out")):
        lines.append(f"{title}:")
        for name, unit in (("qps", "q/s"), ("p50_ms", "ms"), ("p99_ms", "ms")):
            ours, theirs = flat[f"headrace_{name}{end}"], flat[f"relay_{name}{end}"]
            low, high = flat[f"headrace_{name}{end}_min"], flat[f"headrace_{name}{end}_max"]
            ratio = flat[f"{name.removesuffix('_ms')}_ratio{end}"]
            lines.append(
                f"  {name.removesuffix('_ms'):4} {ours:9.1f} {unit} ({low:.1f} to {high:.1f}), "
                f"relay {theirs:.1f} {unit}, ratio {ratio:.2f}"
            )
        each = ", ".join(f"{r} {flat[f'cpu_ms_per_query_{r}{end}']:.3f}" for r in ROLES)
        lines.append(
            f"  CPU per query: {flat[f'cpu_ms_per_query{end}']:.3f} ms ({each}), relay "
            f"{flat[f'relay_cpu_ms_per_query{end}']:.3f} ms, broker "
            f"{flat[f'headrace_broker_cpu_ms_per_query{end}']:.3f} ms"
        )
    lines.append(f"a worker's handle: {flat['handle_us_per_query']:.1f} us per query")
    return "\n".join(lines)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Headrace's overhead over a bare relay.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, per rate and round")
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running = stack.enter_context(borrow(home))
        flat = summary(run(running, asked.rounds, asked.seconds, logs))
    flat |= handle_figures()
    if asked.json:
        print(json.dumps({**flat, "rounds": asked.rounds, "machine": machine()}))
    else:
        print(
            f"{machine_line()}; {asked.rounds} rounds of {asked.seconds:g} s, medians (min to max)"
        )
        print(report(flat))


if __name__ == "__main__":
    main()

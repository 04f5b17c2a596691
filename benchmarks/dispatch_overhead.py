"""Measure what a dispatcher adds to a query's latency: the same two no-op stages, three times.

    python -m benchmarks.dispatch_overhead [--json] [--rounds 4] [--seconds 10] [--rate 50]

``slots``: both stages get their items by slots. ``ingress``: the queries wait in ingress, whose
dispatcher sends each to a worker of the first stage (``policy: kairos``), so there is no hop more.
``inner``: the second stage has a dispatcher, a process of its own and a hop more. The cases take
turns on one broker, in every second round backwards, and growths and ratios are taken per round,
so that drift of the machine affects all of them. Every variant runs batches of one.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.load import Load, Offered
from benchmarks.machine_speed import machine, machine_line
from benchmarks.overhead import FILE, measure_headrace, say, serving
from headrace.broker.local_broker import Running, borrow
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.topology import file_roles
from profiles.measurements import Entry, FanOut, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable
from streams.kafka.admin.topic_admin import ensure_topics
from streams.kafka.kafka_config import KafkaConfig
from streams.topics import topics

SLOTS, INGRESS, INNER = "slots", "ingress", "inner"
CASES = (SLOTS, INGRESS, INNER)
# The most by which p50 at 50 queries/s may exceed that of slots, ms.
MOST_MS = {INGRESS: 0.2, INNER: 1.2}
CHILD = "b"
OUTSTANDING = 50  # queries in flight in the warm-up: a dispatcher holds back the others
PASS_S = 5e-5  # the time of a no-op stage: the first prediction of the dispatchers


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one case in one round."""

    p50_ms: float
    p99_ms: float
    cpu_ms_per_query: float  # of all roles
    unanswered: int


def pipeline_of(case: str) -> dict[str, Any]:
    """Return the pipeline file of a case: ``noop.yaml`` without batches, and with a profile."""
    found: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    found |= {"name": f"noop-{case}", "profiles": ["profile.json"]}
    for task in found["tasks"].values():
        for variant in task["variants"].values():
            del variant["batch"]
    if case == INGRESS:
        found["policy"] = "kairos"
    if case == INNER:
        found["tasks"][CHILD]["dispatch"] = "kairos"
    return found


def profile_of(pipeline: Mapping[str, Any]) -> ProfileTable:
    """Return the profile of a pipeline of two no-op stages, which dispatchers begin with."""
    latency = Latency(
        batch=1, repeats=1, mean_s=PASS_S, p50_s=PASS_S, p90_s=PASS_S, p95_s=PASS_S, p99_s=PASS_S
    )
    entries = tuple(
        Entry(
            task=task, variant=name, device="cpu", operator=variant["operator"], weights_sha256="",
            load_s=0.0, memory_bytes=0, accuracy=1.0, latency=(latency,),
            children={child: FanOut(1.0, {1: 1.0}) for child in section.get("children", ())},
        )
        for task, section in pipeline["tasks"].items()
        for name, variant in section["variants"].items()
    )  # fmt: skip
    return ProfileTable(pipeline["name"], entries, {})


def written(folder: Path, case: str) -> PipelineFile:
    """Write the pipeline file of a case and its profile into a folder of its own; return it."""
    home = folder / case
    home.mkdir()
    described = pipeline_of(case)
    (home / "profile.json").write_text(profile_text(profile_of(described)), encoding="utf-8")
    path = home / "noop.yaml"
    path.write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
    return read_pipeline_file(path)


def order(number: int) -> tuple[str, ...]:
    """Return the cases in the order of a round."""
    return CASES if number % 2 == 0 else CASES[::-1]


def measured(running: Running, folder: Path, rounds: int, load: Load) -> list[dict[str, Figures]]:
    """Return the figures of every round by case."""
    config = KafkaConfig(running.bootstrap)
    files = {case: written(folder, case) for case in CASES}
    for file in files.values():
        ensure_topics(config, topics(file.pipeline))
    found = []
    for number in range(rounds):
        figures = {}
        for case in order(number):
            say(f"round {number + 1} of {rounds}: {case}")
            figures[case] = _measured(running, folder, files[case], load)
        found.append(figures)
    return found


def _measured(running: Running, logs: Path, file: PipelineFile, load: Load) -> Figures:
    roles = {role.name: (role.kind, *role.arguments) for role in file_roles(file)}
    with serving(running.bootstrap, logs, file.path, roles) as pids:
        seen = measure_headrace(running.bootstrap, load, pids, running.pid, file.pipeline.name)
    return figures_of(seen, roles)


def figures_of(seen: Offered, roles: Iterable[str]) -> Figures:
    """Return the figures of a measurement; CPU time is that of the roles."""
    cpu = sum(seen.cpu_ms_per_query[role] for role in roles)
    return Figures(seen.p50_ms, seen.p99_ms, cpu, seen.sent - seen.answered)


def summary(rounds: Sequence[Mapping[str, Figures]]) -> dict[str, float]:
    """Return the median, least and largest value of every figure, growth (ms) and ratio."""
    flat: dict[str, float] = {}
    for case in CASES:
        ours = [each[case] for each in rounds]
        flat |= _spread(f"p50_ms_{case}", [x.p50_ms for x in ours])
        flat |= _spread(f"p99_ms_{case}", [x.p99_ms for x in ours])
        flat |= _spread(f"cpu_ms_per_query_{case}", [x.cpu_ms_per_query for x in ours])
        flat[f"unanswered_{case}"] = sum(x.unanswered for x in ours)
        if case != SLOTS:
            pairs = [(each[case].p50_ms, each[SLOTS].p50_ms) for each in rounds]
            flat |= _spread(f"p50_growth_ms_{case}", [a - b for a, b in pairs])
            flat |= _spread(f"p50_ratio_{case}", [a / b for a, b in pairs])
    return flat


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    return {
        name: statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)
    }  # fmt: skip


def report(flat: Mapping[str, float]) -> str:
    """Return the figures as text: medians over the rounds, least and largest in brackets."""
    lines = []
    for case in CASES:
        line = (
            f"{case:8} p50 {_told(flat, f'p50_ms_{case}')} ms, p99 {_told(flat, f'p99_ms_{case}')} "
            f"ms, CPU {_told(flat, f'cpu_ms_per_query_{case}')} ms a query, "
            f"{flat[f'unanswered_{case}']:.0f} unanswered"
        )
        if case != SLOTS:
            line += (
                f"\n{'':8} p50 grows by {_told(flat, f'p50_growth_ms_{case}')} ms "
                f"(at most {MOST_MS[case]:g}), ratio {_told(flat, f'p50_ratio_{case}')}"
            )
        lines.append(line)
    return "\n".join(lines)


def _told(flat: Mapping[str, float], name: str) -> str:
    return f"{flat[name]:.2f} ({flat[f'{name}_min']:.2f} to {flat[f'{name}_max']:.2f})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=4, help="(4)")
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, per case and round")
    parser.add_argument("--rate", type=float, default=50.0, help="queries/s (50)")
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        home, folder = (Path(stack.enter_context(tempfile.TemporaryDirectory())) for _ in range(2))
        running = stack.enter_context(borrow(home))
        load = Load(rate=asked.rate, seconds=asked.seconds, outstanding=OUTSTANDING)
        rounds = measured(running, folder, asked.rounds, load)
    flat = summary(rounds)
    if asked.json:
        print(json.dumps({**flat, "rounds": asked.rounds, "machine": machine()}))
        return
    print(machine_line())
    print(
        f"{asked.rate:g} queries/s, {asked.rounds} rounds of {asked.seconds:g} s, "
        "medians (min to max)"
    )
    print(report(flat))


if __name__ == "__main__":
    main()

"""Play sessions that come and go on a local broker and in simulation, and compare the goodput.

    python -m benchmarks.live_sessions [--sessions 200] [--seconds 600] [--seed 0] [--json OUT]

Sessions of four kinds (accuracy, latency) open in turn, evenly over the seconds, last ``LASTS`` of
them and send queries at ``QPS`` (Poisson). Their plans are searched through a profiler, scheduled
on ``DEVICES`` shared devices of each of two tiers, and served by worker processes whose operators
take given seconds. The same sessions, arrivals and seconds are played in virtual time first
(``headrace simulate --sessions``). *Goodput* is the mean number of sessions at a time that
meet their objectives (headrace/simulation/sessions/session_results.py). Exit code 1 if the live one
differs by more than ``WITHIN`` from the simulated one.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.knob_operators import a_workload, an_operator
from benchmarks.machine_speed import machine_line
from control.problem.space import Space
from headrace.client.formats import answer_reader, answers_in
from headrace.client.topic_clients import Asker, Tail, decoded
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file, search_space
from headrace.fidelity.live_run import LiveEnvironment, live_environment
from headrace.planning.recorded_truth import read_truth
from headrace.planning.sessions_file import read_sessions
from headrace.simulation.sessions.session_nodes import Recording
from headrace.simulation.sessions.session_results import as_row
from headrace.simulation.sessions.session_run import (
    KEPT,
    SETTLES_S,
    SessionsRun,
    lives,
    played_sessions,
    session_inputs,
    summed,
)
from schemas.codec.single_object import encode
from schemas.effects import COMMANDS, PROFILE_RESULTS, RESULTS
from schemas.records import Command, Query
from streams.kafka.kafka_client import producer
from streams.topics import physical

WITHIN = 0.05
ANSWERED_WITHIN_S = 3.0  # after the last deadline
LOOK_S = 0.05
KINDS = (("quick", "150ms", 0.8), ("plain", "300ms", 0.8), ("sharp", "400ms", 0.9),
         ("calm", "1s", 0.9))  # fmt: skip
LASTS = 0.1  # of the seconds: this share of the sessions lives at a time
QPS = 2.0
DEVICES = 4  # of each tier
SAMPLES, PAYLOAD_BYTES = 200, 1000
SCAN_S, READ_S = 0.010, 0.012  # at full scale, of a vote
RIGHT = {("1", "1"): 0.86, ("1", "3"): 0.96, ("0.5", "1"): 0.68, ("0.5", "3"): 0.82}
PIPELINE = """\
name: live-sessions
workload: live_sessions_operators:Numbers
slo: {latency: 300ms, accuracy: 0.8}
input: raw
results: json
policy: compass
policies:
  compass: {kind: compass, deadline: 20s, spend: 0, samples: {least: 50, most: 200}}
tasks:
  scan:
    children: [read]
    tiers: [depot]
    knobs: {scale: [1, 0.5]}
    variants: {scan: {operator: "live_sessions_operators:Scan", arguments: {scale: $scale}}}
  read:
    tiers: [cloud]
    knobs: {votes: [1, 3]}
    variants: {read: {operator: "live_sessions_operators:Read", arguments: {votes: $votes}}}
cluster:
  tiers:
    depot: {speed: 1, count: DEVICES, price: 0.05}
    cloud: {speed: 1, count: DEVICES, price: 0.2}
  links:
    depot>cloud: {rate: 100Mbps, delay: 5ms}
profiling: {truth: workload}
"""
OPERATORS = (
    f'''\
"""Operators that sleep for their seconds; answers are right by number and knobs."""

import time
from itertools import count

PAYLOAD_BYTES, READ_S, SCAN_S, RIGHT = {PAYLOAD_BYTES}, {READ_S}, {SCAN_S}, {RIGHT}


def is_right(number, scale, votes):
    return number * 2654435761 % 2**32 / 2**32 < RIGHT[scale, votes]


def read(value, votes):
    time.sleep(READ_S * votes)
    scale, _, number = bytes(value).partition(b" ")
    return int(is_right(int(number), scale.decode(), str(votes)))
'''
    + an_operator(
        "Scan",
        "scale",
        'time.sleep(SCAN_S * self._scale) or [b"%g " % self._scale + bytes(value[:8])]',
    )
    + an_operator("Read", "votes", "read(value, self._votes)")
    + a_workload(
        "Numbers",
        """
        for number in count():
            yield b"%08d" % number + bytes(PAYLOAD_BYTES - 8), 1
        """,
    )
)


def is_right(number: int, scale: str, votes: str) -> bool:
    """Return whether a configuration answers the sample of this number correctly."""
    return number * 2654435761 % 2**32 / 2**32 < RIGHT[scale, votes]


def written(folder: Path, sessions: int, seconds: float) -> tuple[PipelineFile, Path, Path]:
    """Write the pipeline, its operators, its recording and the sessions; return the pipeline and
    the paths of the other two."""
    (folder / "live_sessions_operators.py").write_text(OPERATORS)
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.replace("DEVICES", str(DEVICES)))
    file = read_pipeline_file(path)
    truth = folder / "truth.json"
    truth.write_text(json.dumps(recording(search_space(file).space)))
    each = max(1, sessions // len(KINDS))
    gap_s = (1 - LASTS) * seconds / each
    listed = {
        name: {
            "slo": slo, "accuracy": accuracy, "count": each, "qps": QPS,
            "opens": f"{1e3 * gap_s * number / len(KINDS):.0f}ms", "every": f"{1e3 * gap_s:.0f}ms",
            "lasts": f"{1e3 * LASTS * seconds:.0f}ms",
        }
        for number, (name, slo, accuracy) in enumerate(KINDS)
    }  # fmt: skip
    plan = folder / "sessions.yaml"
    plan.write_bytes(msgspec.yaml.encode(listed))
    return file, plan, truth


def recording(space: Space) -> dict[str, Any]:
    """Return the profiles of all configurations, as ``headrace search --record`` writes them."""
    rows = []
    for c in range(space.configuration_count):
        options = space.named(c)
        scale, votes = options["scan.scale"], options["read.votes"]
        rows.append(
            {
                "options": options,
                "scores": [float(is_right(n, scale, votes)) for n in range(SAMPLES)],
                "seconds": {"scan": SCAN_S * float(scale), "read": READ_S * int(votes)},
                "bytes": {"scan": 12.0, "read": 8.0},
                "memory_bytes": {},
            }
        )
    return {
        "pipeline": "live-sessions", "input_bytes": PAYLOAD_BYTES, "result_bytes": 8.0,
        "parallelism": 1, "provenance": {"given": "benchmarks.live_sessions"},
        "configurations": rows,
    }  # fmt: skip


def played_live(
    system: LiveEnvironment, sessions: Path, truth: Path, seconds: float, seed: int
) -> SessionsRun:
    """Play the sessions on the running pipeline."""
    file, space = system.file, search_space(system.file)
    results = lives(read_sessions(sessions, space), time.time() + SETTLES_S, seconds)
    payload = b"%08d" % 0 + bytes(PAYLOAD_BYTES - 8)
    with Player(system) as player:
        for at_s, _, _, record in sorted(
            session_inputs(file, results, payload, seed), key=itemgetter(0)
        ):
            player.read_until(at_s)
            player.send(record)
        player.read_until(time.time() + file.pipeline.longest_deadline_s + ANSWERED_WITHIN_S)
        profiles = [each for each in player.found[PROFILE_RESULTS] if each is not None]
        found = player.found
    known = Recording(file.pipeline, space, read_truth(truth, space.space))
    return summed(file, known, found, results, seconds, sum(each.spent_s for each in profiles))


class Player(ExitStack):
    """Sends commands and queries to a running pipeline; ``found`` are its records by topic."""

    def __init__(self, system: LiveEnvironment) -> None:
        super().__init__()
        self._pipeline = system.file.pipeline
        self._tails = {
            topic: self.enter_context(closing(Tail(system.kafka, self._topic(topic))))
            for topic in (*KEPT, PROFILE_RESULTS)
        }
        self._asker = self.enter_context(Asker(system.kafka, self._pipeline))
        self._commands = producer(system.kafka)
        self._read = answer_reader(self._pipeline)
        self.found: dict[str, list[Any]] = {topic: [] for topic in self._tails}

    def _topic(self, logical: str) -> str:
        return physical(self._pipeline.name, logical)

    def send(self, record: Command | Query) -> None:
        """Send a command or a query."""
        if isinstance(record, Query):
            self._asker.ask(record)
        else:
            self._commands.produce(self._topic(COMMANDS), encode(record), record.id)
            self._commands.poll(0)

    def read_until(self, at_s: float) -> None:
        """Read the pipeline's records until a time."""
        while (left_s := at_s - time.time()) > 0:
            for topic, tail in self._tails.items():
                values = tail.take(min(left_s, LOOK_S) if topic == RESULTS else 0.0)
                self.found[topic] += (
                    answers_in(values, self._read)
                    if topic == RESULTS
                    else filter(None, map(decoded, values))
                )


def text(name: str, run: SessionsRun) -> str:
    """Return a run in a line."""
    row = as_row(run)
    in_time = sum(each.in_time for each in run.results)
    queries = sum(sum(each.outcomes.values()) for each in run.results)
    return (
        f"{name:10} goodput {row['goodput_sessions']:.2f} sessions at a time; {row['served']} of "
        f"{row['sessions']} served, the first plan after {row['serving_mean_s'] or 0:.2f} s in the "
        f"mean; {in_time} of {queries} queries in time; {row['usd_per_h']:.2f} $/h"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play both, print and compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=200, help="(200)")
    parser.add_argument("--seconds", type=float, default=600.0, help="(600)")
    parser.add_argument("--seed", type=int, default=0, help="of the arrivals (0)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="Write both runs here.")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="headrace-live-sessions-") as folder:
        file, sessions, truth = written(Path(folder), options.sessions, options.seconds)
        simulated = played_sessions(file, sessions, truth, options.seconds, options.seed)
        speed = machine_line()
        print(speed)
        print(text("simulated", simulated), flush=True)
        with live_environment(file, file.pipeline.policy, 1.0) as system:
            live = played_live(system, sessions, truth, options.seconds, options.seed)
    print(text("live", live))
    rows = {"simulated": as_row(simulated), "live": as_row(live), "machine": speed}
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    ratio = rows["live"]["goodput_sessions"] / max(rows["simulated"]["goodput_sessions"], 1e-9)
    print(f"live over simulated: {ratio:.3f} (within {WITHIN:g} of 1 asked)")
    return int(abs(ratio - 1) > WITHIN)


if __name__ == "__main__":
    sys.exit(main())

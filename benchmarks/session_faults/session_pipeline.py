"""The pipeline: two tasks of emulated seconds, three knobs' worth of plans, labelled queries.

Operators sleep for their seconds. The letters of a sample set are all easy or all hard. ``Read``
writes a line for each call to ``runs.jsonl``, so that every run of a sample is known, also one
whose profiler died before it could write a result. It takes longer in the processes that the file
``SLOWER`` names.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.knob_operators import a_workload, an_operator

RUNS = "runs.jsonl"
SLOWER = "slower.json"  # how many times as long processes take, by process id
MODULE = "session_faults_operators"
SCAN_S, READ_S = 0.004, 0.02  # at full scale; of a vote
LOAD_S = 1.0  # of three votes, so that a plan that loads is seen; other settings load at once
EASY, HARD = "a", "b"  # one vote does not read hard letters
BLOCK = 10  # samples of a request
DRIFTS = "drifts"  # the prefix of sessions whose data change
DESCRIPTION: dict[str, Any] = {
    "workload": f"{MODULE}:Letters",
    "slo": {"latency": "3s", "accuracy": 0.9},
    "input": "raw",
    "results": "json",
    "labels": {"scorer": f"{MODULE}:right"},
    "policy": "compass",
    "policies": {"compass": {"kind": "compass", "spend": 0}},
    "tasks": {
        "scan": {
            "children": ["read"],
            "tiers": ["depot"],
            "knobs": {"scale": [1, 0.5]},
            "variants": {"scan": {"operator": f"{MODULE}:Scan", "arguments": {"scale": "$scale"}}},
        },
        "read": {
            "tiers": ["cloud"],
            "knobs": {"votes": [1, 3]},
            "variants": {"read": {"operator": f"{MODULE}:Read", "arguments": {"votes": "$votes"}}},
        },
    },
    "cluster": {
        "profilers": 2,
        "tiers": {
            "depot": {"speed": 1, "count": 1, "price": 0.05},
            "cloud": {"speed": 1, "count": 2, "price": 0.2},
        },
        "links": {"depot>cloud": {"rate": "100Mbps", "delay": "1ms"}},
    },
}
OPERATORS = (
    f'''\
"""Operators that sleep for their seconds and tell of every call."""

import json
import os
import time
from pathlib import Path

SCAN_S, READ_S, LOAD_S = {SCAN_S}, {READ_S}, {LOAD_S}
SLOWER = Path(__file__).with_name("{SLOWER}")
RUNS = os.open(Path(__file__).with_name("{RUNS}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def read(value, votes):
    scale, _, payload = bytes(value).decode().partition(" ")
    line = [time.time(), os.getpid(), payload, scale, str(votes)]
    os.write(RUNS, (json.dumps(line) + "\\n").encode())
    slower = json.loads(SLOWER.read_text())
    time.sleep(READ_S * votes * slower.get(str(os.getpid()), 1))
    return payload[0] if payload[0] == "{EASY}" or votes == 3 else "?"


def right(result, truth):
    return result[0] == truth
'''
    + an_operator(
        "Scan",
        "scale",
        'time.sleep(SCAN_S * self._scale) or [b"%g " % self._scale + bytes(value)]',
    )
    + an_operator(
        "Read", "votes", "read(value, self._votes)", "time.sleep(LOAD_S if self._votes == 3 else 0)"
    )
    + a_workload(
        "Letters",
        f"""
        first = int(rng.integers(10**6))
        letter = "{EASY}{HARD}"[first % 2]
        for number in range(1000):
            yield b"%s%07d.%03d" % (letter.encode(), first, number), letter
        """,
    )
)


@dataclass(frozen=True, slots=True)
class SampleRun:
    """A call of ``Read`` on one sample, from the log of calls; ``at_s`` is when it began."""

    at_s: float
    pid: int
    payload: str
    scale: str
    votes: str


def write_operators(folder: Path) -> None:
    """Write the operators' module, and an empty log of calls; no process is slower."""
    (folder / RUNS).touch()
    slow_down(folder, {})
    (folder / f"{MODULE}.py").write_text(OPERATORS)


def slow_down(folder: Path, slower: Mapping[int, float]) -> None:
    """Make each of the processes take so many times as long, and the others as long as planned."""
    written = folder / f"{SLOWER}.new"
    written.write_text(json.dumps(slower))
    written.replace(folder / SLOWER)


def runs_in(lines: Iterable[str]) -> list[SampleRun]:
    """Return the calls in lines of the log; a line that is not whole is left out."""
    return [SampleRun(*json.loads(line)) for line in lines if line.endswith("]\n")]


def sample_of(sample_set: str, number: int) -> str:
    """Return the payload of a sample of one of the workload's sets."""
    seed = int(sample_set.partition("@")[2])
    first = int(np.random.default_rng(seed).integers(10**6))
    return f"{(EASY, HARD)[first % 2]}{first:07d}.{number:03d}"

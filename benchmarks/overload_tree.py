"""Measure the goodput of a tree of four tasks beyond the capacity of the machine.

    nice -n 5 python -m benchmarks.overload_tree [--policies loki static ...] [--too-fast 1.3]
        [--rates 50 100 200 400] [--seconds 12] [--json]

A text pipeline (split, then sentiment, topic and language; operators that compute for a given time)
is profiled and runs under each policy on two workers of two tasks each, with a local broker in its
own folder. It is loaded at rising rates. With ``--too-fast 1.3`` the profile says that batches take
1/1.3 of what was measured. Goodput is what is answered completely and in time, queries a second;
the exit code is 1 if under a policy it is below 90 % of the policy's best at a rate beyond that of
the best.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine_speed import machine
from benchmarks.second_day import User

LEAST_SHARE = 0.9  # of the best goodput
OPERATORS = """
import time

TEXT = "The parcel was late. Please answer soon"

class Split:
    def load(self, device): pass
    def predict(self, batch): return [self.one(value.decode()) for value in batch]
    def one(self, text):
        first, second = text.split(". ", 1)
        return {"sentiment": [first, second], "topic": [text], "language": [first]}

class Compute:
    def __init__(self, ms, wrong_every=0):
        self._s, self._wrong_every, self._count = ms / 1e3, wrong_every, 0
    def load(self, device): pass
    def predict(self, batch):
        until = time.thread_time() + self._s * len(batch)
        while time.thread_time() < until: pass
        return [self.one(text) for text in batch]
    def one(self, text):
        self._count += 1
        wrong = self._wrong_every and self._count % self._wrong_every == 0
        return -1 if wrong else len(text)

class Tickets:
    def queries(self, rng):
        while True:
            yield TEXT.encode(), None
    def score(self, result, truth): return 1, 1
    def task_inputs(self, task, n, rng):
        if task == "split":
            return [TEXT.encode()] * n, [None] * n
        return [TEXT] * n, [len(TEXT)] * n
    def task_score(self, task, output, truth):
        return float(truth is None or output == truth)
"""
FILE = """
name: tickets
slo: 300ms
results: json
workload: tickets_operators:Tickets
tasks:
  split:
    variants: {words: {operator: 'tickets_operators:Split', batch: 16}}
    children: [sentiment, topic, language]
  sentiment:
    variants:
      accurate:
        operator: &compute 'tickets_operators:Compute'
        arguments: {ms: 3.0, wrong_every: 20}
        batch: 8
      fast: {operator: *compute, arguments: {ms: 0.3, wrong_every: 6}, batch: 16}
  topic:
    variants:
      large: {operator: *compute, arguments: {ms: 2.0, wrong_every: 25}, batch: 8}
      small: {operator: *compute, arguments: {ms: 0.2, wrong_every: 8}, batch: 16}
  language:
    variants: {ngrams: {operator: *compute, arguments: {ms: 0.1}, batch: 16}}
cluster: {devices: {cpu: 2}, tasks_per_device: 2}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The outcomes at one rate. Rates are queries a second."""

    policy: str
    rate_qps: float
    goodput_qps: float
    late: int
    dropped: int
    failed: int
    refused: int
    lost: int
    p99_ms: float


def steps(user: User, policy: str, rates: Sequence[float], seconds: float) -> Iterator[Step]:
    """Load the pipeline at each rate and yield what became of it."""
    for rate in rates:
        line = ("load", user.file, "--rate", str(rate), "--seconds", str(seconds), "--json")
        done = user.types(*line)
        if not done.stdout:
            raise RuntimeError(done.stderr.decode())
        row = json.loads(done.stdout)
        counts = {name: row[name] for name in ("late", "dropped", "failed", "refused", "lost")}
        yield Step(
            policy=policy, rate_qps=rate, goodput_qps=round(row["answered"] / seconds, 1),
            p99_ms=row["p99_ms"], **counts,
        )  # fmt: skip


def measured(folder: Path, asked: argparse.Namespace) -> Iterator[Step]:
    """Write the pipeline and profile it; bring it up under each policy and load it."""
    user = User(folder)
    (folder / "tickets_operators.py").write_text(OPERATORS)
    (folder / "pipeline.yaml").write_text(FILE)
    profiled = user.types("profile", user.file, "--device", "cpu")
    if profiled.returncode:
        raise RuntimeError(profiled.stderr.decode())
    profile = folder / "profile-cpu.json"
    profile.write_text(faster(profile.read_text(), asked.too_fast))
    try:
        for policy in asked.policies:
            file = f"{FILE}profiles: [profile-cpu.json]\npolicy: {policy}\n"
            (folder / "pipeline.yaml").write_text(file)
            try:
                user.up()
                yield from steps(user, policy, asked.rates, asked.seconds)
            finally:
                user.down()
    finally:
        user.types("broker", "stop")


def faster(profile: str, factor: float) -> str:
    """Return a profile's text with all latencies divided by a factor."""
    read = json.loads(profile)
    for entry in read["entries"]:
        for row in entry["latency"]:
            row.update({k: v / factor for k, v in row.items() if k.endswith("_s")})
    return json.dumps(read)


def shares(found: Sequence[Step]) -> dict[str, float]:
    """Return by policy the least goodput beyond the rate of the best, as a share of the best."""
    least: dict[str, float] = {}
    for policy in dict.fromkeys(step.policy for step in found):
        own = [step.goodput_qps for step in found if step.policy == policy]
        best = max(own)
        least[policy] = round(min(own[own.index(best) :]) / best, 3) if best else 0.0
    return least


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policies", nargs="+", default=["loki"])
    parser.add_argument("--too-fast", type=float, default=1.0, help="profiled speed over the true")
    parser.add_argument("--rates", nargs="+", type=float, default=[50.0, 100.0, 200.0, 400.0])
    parser.add_argument("--seconds", type=float, default=12.0, help="at each rate")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    found: list[Step] = []
    with tempfile.TemporaryDirectory(prefix="headrace-overload-") as folder:
        for step in measured(Path(folder), asked):
            found.append(step)
            if not asked.json:
                goodput = f"{step.rate_qps:6.0f}/s: {step.goodput_qps:6.1f}/s in time"
                print(f"{step.policy:10} {goodput}; {asdict(step)}", flush=True)
    least = shares(found)
    if asked.json:
        steps_ = [asdict(step) for step in found]
        print(json.dumps({"machine": machine(), "steps": steps_, "share_of_best": least}))
    else:
        told = ", ".join(f"{policy} {100 * share:.0f} %" for policy, share in least.items())
        print(f"of the best goodput: {told}; wanted {100 * LEAST_SHARE:.0f} %; load average "
              f"{os.getloadavg()[0]:.1f}")  # fmt: skip
    return 0 if min(least.values()) >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())

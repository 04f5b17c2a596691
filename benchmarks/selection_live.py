"""Policies live on the same ramp of load: measured accuracy and SLO attainment.

    python -m benchmarks.selection_live [--policy ramsis committee cnn loki] [--rounds 2] [--json]

``examples/postcode/read.yaml`` is brought up once on the local broker: real models, every one of
them on every worker. Each policy is put in force by command, sees the ramp's first step without
being measured, and then the whole ramp; policies take turns, and every round has a seed of its
own, the same for all. The ramp goes up step by step and down again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.broker.local_broker import borrow

FILE = Path(__file__).parents[1] / "examples" / "postcode" / "read.yaml"
POLICIES = ("ramsis", "committee", "cnn", "loki")
STEPS = (50, 100, 200, 300, 400)  # queries/s
SHOWN = ("slo_attainment", "accuracy", "p50_ms", "p95_ms", "p99_ms")

Row = dict[str, Any]


def ramp(steps: Sequence[int], seconds: int) -> str:
    """An arrivals file: every step for so many seconds, up and down again."""
    rates = [qps for qps in (*steps, *reversed(steps[:-1])) for _ in range(seconds)]
    lines = (f"{second},{qps}\n" for second, qps in enumerate(rates))
    return "second,qps\n" + "".join(lines)


def headrace(bootstrap: str, *arguments: str) -> Any:
    """A command's JSON; raises ``CalledProcessError`` where it fails."""
    command = [sys.executable, "-m", "headrace", *arguments, "--json"]
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout or "null")


@contextmanager
def up(bootstrap: str, file: Path) -> Iterator[None]:
    """The pipeline while the block lasts."""
    headrace(bootstrap, "up", str(file), "--detach")
    try:
        yield
    finally:
        headrace(bootstrap, "down", str(file))


def measured(bootstrap: str, file: Path, policy: str, arrivals: Path, seed: int) -> Row:
    """What became of the ramp under a policy."""
    headrace(bootstrap, "policy", "apply", str(file), policy)
    # Long enough for tables to be made and variants to be loaded.
    warm = ("--rate", str(STEPS[0]), "--seconds", "15", "--seed", str(seed + 1000))
    headrace(bootstrap, "load", str(file), *warm)
    row = headrace(
        bootstrap, "load", str(file), "--arrivals", str(arrivals), "--seed", str(seed)
    )  # fmt: skip
    return {"policy": policy, "seed": seed, "load_average": os.getloadavg()[0], **row}


def text(rows: Sequence[Row]) -> str:
    """A line for each policy: medians and, in brackets, the least and the most."""
    lines = [f"{'policy':10} " + "".join(f"{name:>32}" for name in SHOWN)]
    for policy in dict.fromkeys(row["policy"] for row in rows):
        cells = []
        for name in SHOWN:
            seen = [row[name] for row in rows if row["policy"] == policy]
            middle, least, most = statistics.median(seen), min(seen), max(seen)
            cells.append(f"{middle:.4g} ({least:.4g} to {most:.4g})")
        lines.append(f"{policy:10} " + "".join(f"{cell:>32}" for cell in cells))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Policies live on a ramp of load.")
    parser.add_argument("--file", type=Path, default=FILE, help="with other keys, beside the first")
    parser.add_argument("--policy", nargs="+", default=list(POLICIES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--step-seconds", type=int, default=6)
    parser.add_argument("--steps", type=int, nargs="+", default=list(STEPS))
    parser.add_argument("--json", action="store_true", help="every row, as JSON on stdout")
    asked = parser.parse_args(arguments)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, borrow(Path(folder) / "broker") as running:
        arrivals = Path(folder) / "ramp.csv"
        arrivals.write_text(ramp(asked.steps, asked.step_seconds), encoding="utf-8")
        with up(running.bootstrap, asked.file):
            for seed in range(asked.rounds):
                rows += [
                    measured(running.bootstrap, asked.file, policy, arrivals, seed)
                    for policy in asked.policy
                ]
    print(json.dumps(rows) if asked.json else text(rows))


if __name__ == "__main__":
    main()

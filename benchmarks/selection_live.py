"""Measure accuracy and SLO attainment of policies, live on the same ramp of load.

    python -m benchmarks.selection_live [--policy ramsis committee cnn loki] [--rounds 2] [--json]

``examples/postcode/read.yaml`` is started once on the local broker, with all its real models on
every worker. Each policy is applied by command, warms up at the ramp's first step, and then serves
the whole ramp, which goes up step by step and down again. Policies alternate; each round has one
seed for all policies.
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
    """Return an arrivals file with ``seconds`` of every step, up and down again."""
    rates = [qps for qps in (*steps, *reversed(steps[:-1])) for _ in range(seconds)]
    lines = (f"{second},{qps}\n" for second, qps in enumerate(rates))
    return "second,qps\n" + "".join(lines)


def headrace(bootstrap: str, *arguments: str) -> Any:
    """Run a command; return its JSON. Raises ``CalledProcessError`` if it fails."""
    command = [sys.executable, "-m", "headrace", *arguments, "--json"]
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": bootstrap}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout or "null")


@contextmanager
def up(bootstrap: str, file: Path) -> Iterator[None]:
    """Run the pipeline during the block."""
    headrace(bootstrap, "up", str(file), "--detach")
    try:
        yield
    finally:
        headrace(bootstrap, "down", str(file))


def measured(bootstrap: str, file: Path, policy: str, arrivals: Path, seed: int) -> Row:
    """Play the ramp under a policy; return the figures."""
    headrace(bootstrap, "policy", "apply", str(file), policy)
    # Long enough to solve tables and to load variants.
    warm = ("--rate", str(STEPS[0]), "--seconds", "15", "--seed", str(seed + 1000))
    headrace(bootstrap, "load", str(file), *warm)
    row = headrace(
        bootstrap, "load", str(file), "--arrivals", str(arrivals), "--seed", str(seed)
    )  # fmt: skip
    return {"policy": policy, "seed": seed, "load_average": os.getloadavg()[0], **row}


def text(rows: Sequence[Row]) -> str:
    """Return a line per policy: medians and, in brackets, minimum and maximum."""
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

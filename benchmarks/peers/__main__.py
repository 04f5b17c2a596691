"""Measure Headrace beside Ray Serve and MLServer: the same two stages under the same load.

    python -m benchmarks.peers [--json] [--rounds 3] [--seconds 5] [--workloads noop postcode]
                               [--systems headrace ray mlserver mlserver-one]
                               [--record FILE] [--page FILE]

The systems run one after the other, all of them in every round. Peers get their own environments
under build/peers, made at the first run. ``--record`` appends to the rows of earlier runs, so that
a long measurement can be made in pieces; the page is written from all of them.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.commit import commit
from benchmarks.peers.measure import Plan, Row, measure
from benchmarks.peers.page import page
from benchmarks.peers.systems import SYSTEMS, lines_of
from benchmarks.peers.workloads import WORKLOADS
from benchmarks.row_file import RowFile
from headrace.machine import machine


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, record, print and write the page."""
    asked = _parser().parse_args(arguments)
    record = RowFile(asked.record, Row) if asked.record else None
    rows = record.read() if record else []
    first = 1 + max((row.round for row in rows if row.workload in asked.workloads), default=0)
    for row in _measured(asked, range(first, first + asked.rounds)):
        rows.append(row)
        if record:
            record.append(row)
    lines = {
        workload: {name: lines_of(system.code(workload)) for name, system in SYSTEMS.items()}
        for workload in WORKLOADS
    }
    text = page(rows, lines)
    if asked.page:
        asked.page.write_text(text)
    print(json.dumps({"rows": [*map(asdict, rows)], "lines": lines}) if asked.json else text)


def _measured(asked: argparse.Namespace, rounds: range) -> Iterator[Row]:
    measured_at, place = commit(), f"{datetime.now(UTC).date()}, {machine()}"
    with tempfile.TemporaryDirectory() as logs:
        for workload in [WORKLOADS[name]() for name in asked.workloads]:
            for number in rounds:
                plan = Plan(
                    commit=measured_at,
                    place=place,
                    round=number,
                    seconds=asked.seconds,
                    protocols=asked.protocols,
                )
                # Each round begins with another system.
                turn = number % len(asked.systems)
                for name in (*asked.systems[turn:], *asked.systems[:turn]):
                    print(f"{workload.name}, round {number}: {name}", file=sys.stderr, flush=True)
                    yield from measure(name, workload, plan, Path(logs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Headrace beside Ray Serve and MLServer.")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=[*SYSTEMS])
    parser.add_argument("--protocols", nargs="+", choices=("Kafka", "HTTP", "gRPC"), default=[])
    parser.add_argument("--record", type=Path, help="JSON lines of this and earlier runs")
    parser.add_argument("--page", type=Path, help="write docs/results/peers.md here")
    return parser


if __name__ == "__main__":
    main()

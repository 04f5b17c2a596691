"""Measure whether the memory of a role grows: a pipeline under a steady load, without faults.

    python -m benchmarks.memory_growth [--minutes 60] [--warm-up 10] [--rate 50] [--plans 600]
        [--readings FILE] [--json]

The first half of the warm-up offers ``PEAK`` times the rate: heap that a backlog has used stays
with the process (glibc returns little of it), and is no growth. In the second half ``--plans``
plans are requested, evenly spread: the process that solves and its caller take about 1 MB in their
first thousand plans and nothing after them (docs/results/chaos.md, "Memory over an hour"). The
resident memory of every role is read every 5 s. After the warm-up the growth is the slope of Theil
and Sen (the median over all pairs of readings) with its 95 % interval, in percent of the median
memory a day. Exit code 1: a role grows by more than ``MOST_PERCENT_A_DAY``, or a query has no
answer.
"""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import psutil
import scipy

from benchmarks.chaos import a_rig, say, settle
from benchmarks.machine_speed import machine
from benchmarks.received_answers import ends
from benchmarks.rig import Stuck

READ_EVERY_S = 5.0
SAID_EVERY_S = 300.0
DAY_S = 86_400.0
MOST_PERCENT_A_DAY = 10.0
PEAK = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The memory of a role: its median and, in percent of it a day, the slope and its interval."""

    role: str
    readings: int
    median_mb: float
    percent_a_day: float
    low_percent_a_day: float
    high_percent_a_day: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The result of a run."""

    minutes: float
    warm_up_minutes: float
    rate: float
    plans: int
    queries: int
    unanswered: int
    outcomes: str
    growth: tuple[Growth, ...]

    @property
    def held(self) -> bool:
        """Whether no role grows too fast and every query has its answer."""
        slow = all(one.percent_a_day <= MOST_PERCENT_A_DAY for one in self.growth)
        return slow and not self.unanswered


def growth(role: str, readings: Sequence[tuple[float, float]]) -> Growth:
    """Return the growth in readings of (seconds, bytes); at least two of different times."""
    seconds, sizes = np.array(readings).T
    median = float(np.median(sizes))
    slope, _, low, high = scipy.stats.theilslopes(sizes, seconds, 0.95)
    percent = 100 * DAY_S / median
    return Growth(
        role=role,
        readings=len(readings),
        median_mb=round(median / 1e6, 1),
        percent_a_day=round(slope * percent, 1),
        low_percent_a_day=round(low * percent, 1),
        high_percent_a_day=round(high * percent, 1),
    )


def measure(
    folder: Path,
    minutes: float,
    warm_up_minutes: float,
    rate: float,
    plans: int,
    table: Path | None,
) -> Account:
    """Run and return the account; write every reading to ``table``.

    Raises ``Stuck`` if no pipeline starts or a role ends.
    """
    readings: dict[str, list[tuple[float, float]]] = {}
    with a_rig(folder) as (rig, _):
        say(f"up after {rig.up():.1f} s")
        rig.offer(PEAK * rate)
        rig.pass_time(30 * warm_up_minutes)
        rig.offer(rate)
        ends_s = time.monotonic() + 30 * warm_up_minutes
        for left in range(plans, 0, -1):
            rig.command("apply-policy", policy="static")
            rig.pass_time(max(0.0, (ends_s - time.monotonic()) / left))
        rig.pass_time(max(0.0, ends_s - time.monotonic()))
        began_s = said_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < 60 * minutes:
            rig.pass_time(READ_EVERY_S)
            for role, size in _resident(rig.pids).items():
                readings.setdefault(role, []).append((passed_s, size))
            if time.monotonic() - said_s > SAID_EVERY_S:
                said_s = time.monotonic()
                say(f"{passed_s / 60:.0f} of {minutes:g} min; {ends(rig.answers)}")
        settle(rig)
        if table is not None:
            _write(table, readings)
        return Account(
            minutes=minutes,
            warm_up_minutes=warm_up_minutes,
            rate=rate,
            plans=plans,
            queries=len(rig.asked),
            unanswered=len(rig.waiting),
            outcomes=ends(rig.answers),
            growth=tuple(growth(role, rows) for role, rows in sorted(readings.items())),
        )


def _write(table: Path, readings: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    rows = [
        f"{role},{at_s:.1f},{size:.0f}\n" for role, each in readings.items() for at_s, size in each
    ]
    table.write_text("".join(["role,at_s,resident_bytes\n", *rows]))


def _resident(pids: Mapping[str, int]) -> dict[str, float]:
    """Return the resident memory of each role and its child processes, bytes."""
    found = {}
    for role, pid in pids.items():
        process = psutil.Process(pid)
        family = (process, *process.children(recursive=True))
        found[role] = float(sum(one.memory_info().rss for one in family))
    return found


def report(account: Account) -> str:
    """Return the account as text."""
    lines = [
        f"{account.minutes:g} minutes after {account.warm_up_minutes:g} of warm-up with "
        f"{account.plans} plans asked for, {account.rate:g} queries/s; "
        f"{account.queries} queries: {account.outcomes}; {account.unanswered} unanswered",
        f"{'role':<12} {'median MB':>10} {'growth, % a day (95 %)':>28}",
    ]
    for one in account.growth:
        interval = f"({one.low_percent_a_day:+.1f} to {one.high_percent_a_day:+.1f})"
        lines.append(
            f"{one.role:<12} {one.median_mb:>10.1f} {one.percent_a_day:>+9.1f} {interval:>18}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 if a role grows or a query is unanswered."""
    parser = argparse.ArgumentParser(description="Growth of the roles' memory under load.")
    parser.add_argument("--minutes", type=float, default=60.0, help="measured")
    parser.add_argument("--warm-up", type=float, default=10.0, help="minutes before that")
    parser.add_argument("--rate", type=float, default=50.0, help="queries/s")
    parser.add_argument("--plans", type=int, default=600, help="asked for in the warm-up")
    parser.add_argument("--readings", type=Path, help="CSV of every reading, to be written")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # end the roles, too
    with tempfile.TemporaryDirectory(prefix="headrace-memory-") as folder:
        try:
            account = measure(
                Path(folder), asked.minutes, asked.warm_up, asked.rate, asked.plans, asked.readings
            )
        except Stuck as stuck:
            print(f"no measurement: {stuck}", file=sys.stderr)
            return 1
    row = {**asdict(account), "held": account.held, "machine": machine()}
    print(json.dumps(row) if asked.json else report(account))
    return 0 if account.held else 1


if __name__ == "__main__":
    sys.exit(main())

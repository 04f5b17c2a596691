"""Play random schedules of faults in virtual time, with the invariants after every event.

    python -m benchmarks.schedules [--count 1000] [--seed 1] [--first 0] [--jobs 2] [--json]
    python -m benchmarks.schedules --schedule '{"seed": ...}'

Nodes, live driver, wire formats and controller are the product's; the broker, the network and the
clocks are simulated. A failing schedule is reduced and printed with the command that repeats it;
the exit code is then 1.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.schedules.fault_schedule import Schedule, drawn, from_json, reduced
from benchmarks.schedules.schedule_world import Played, play


@dataclass(frozen=True, slots=True)
class Tried:
    """The result of one schedule; ``error`` is empty if every invariant held."""

    schedule: Schedule
    played: Played | None
    error: str


def tried(schedule: Schedule) -> Tried:
    """Play a schedule."""
    try:
        return Tried(schedule, play(schedule), "")
    except Exception as error:  # noqa: BLE001 - whatever a schedule raises is its result
        return Tried(schedule, None, f"{type(error).__name__}: {error}")


def every(schedules: Sequence[Schedule], jobs: int) -> Iterator[Tried]:
    """Play schedules in several processes; yield their results in order."""
    if jobs == 1:
        yield from map(tried, schedules)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(tried, schedules, chunksize=4)


def again(schedule: Schedule) -> str:
    """Return the command that repeats a schedule."""
    return f"python -m benchmarks.schedules --schedule '{schedule.to_json()}'"


def _fails(schedule: Schedule) -> bool:
    return bool(tried(schedule).error)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def failed(one: Tried) -> dict[str, Any]:
    """Reduce a failing schedule and print it; return it as JSON values."""
    _say(f"failed: {one.error}")
    small = reduced(one.schedule, _fails)
    error = tried(small).error
    _say(f"    reduced to {len(small.faults)} of {len(one.schedule.faults)} faults: {error}")
    for fault in small.faults:
        _say(f"        {asdict(fault)}")
    _say(f"    again: {again(small)}")
    return {"error": error, "again": again(small), "drawn": one.schedule.to_json()}


def measure(schedules: Sequence[Schedule], jobs: int) -> dict[str, Any]:
    """Play schedules; return the figures and the failures."""
    began_s, failures = time.monotonic(), []
    kinds, outcomes, totals = Counter[str](), Counter[str](), Counter[str]()
    for number, one in enumerate(every(schedules, jobs), 1):
        kinds.update(fault.kind for fault in one.schedule.faults)
        if one.played is None:
            failures.append(failed(one))
        else:
            outcomes.update(one.played.outcomes)
            totals["queries"] += one.played.queries
            totals["restarts"] += one.played.restarts
            totals["refused_instances"] += one.played.refused
            totals["commits_went_back"] += one.played.went_back
            totals["steps"] += one.played.steps
        if number % 100 == 0:
            _say(f"{number} played in {time.monotonic() - began_s:.0f} s, {len(failures)} failed")
    return {
        "schedules": len(schedules),
        "seconds": round(time.monotonic() - began_s, 1),
        "faults": dict(sorted(kinds.items())),
        "outcomes": dict(sorted(outcomes.items())),
        **totals,
        "failures": failures,
    }


def report(row: Mapping[str, Any]) -> str:
    """Return the figures as text."""
    faults = ", ".join(f"{count} {kind}" for kind, count in row["faults"].items())
    ends = ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items())
    verdict = f"{len(row['failures'])} failed" if row["failures"] else "every invariant held"
    return (
        f"{row['schedules']} schedules in {row['seconds']} s: {verdict}\n"
        f"faults: {faults}\nqueries: {row.get('queries', 0)} ({ends})"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print; return 1 if an invariant did not hold."""
    parser = argparse.ArgumentParser(description="Random schedules of faults in virtual time.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="index of the first: runs in parts")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--schedule", help="play this one schedule, as a failure printed it")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    indices = range(asked.first, asked.first + asked.count)
    given = asked.schedule
    schedules = [from_json(given)] if given else [drawn(asked.seed, i) for i in indices]
    row = measure(schedules, asked.jobs)
    print(json.dumps(row) if asked.json else report(row))
    return 1 if row["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

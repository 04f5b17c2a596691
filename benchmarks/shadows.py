"""Show that shadows cost no answer its deadline, at loads up to and beyond the capacity.

    python -m benchmarks.shadows ROWS [--seeds 3] [--page docs/results/shadows.md]
    python -m benchmarks.shadows --live [--loads 0.6 1] [--rounds 3] [--seconds 60]

Three emulated workers serve one task, two with ``small``, one with ``large``; 5 % of the queries
have a shadow. Every run has a twin with the same arrivals and without shadows. In virtual time a
batch takes its median and hops nothing, so that shadows alone explain a query that misses its
deadline in only one of the two. Runs whose rows the file ROWS has are not played again.

``--live`` runs the same pipeline, ten times slower, on a local broker, with shadows and without in
turn. The exit code is 1 if shadows cost an answer its deadline: in virtual time any answer, live a
larger share than the difference among the runs without shadows.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.commit import commit
from benchmarks.rig import Rig
from benchmarks.row_file import RowFile
from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Arrivals, Renewal
from headrace.broker.local_broker import borrow
from headrace.client.accuracy_topic import newest_accuracy
from headrace.config.pipeline_file import read_pipeline_file
from headrace.machine import machine
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from operators.outcomes import outcome_of
from schemas.effects import RESULTS, SHADOWS, Effect, Event, Send
from schemas.records import ANSWERED, Answer, Origin, Work

SHARE = 0.05  # of the queries have a shadow
LOADS = (0.3, 0.6, 0.8, 1.0, 1.1)  # of the capacity
SECONDS = 8.0
BATCH_S, SLO_S = 0.005, 0.2
SERVED_QPS = 888.0  # batches of eight in 22.5 ms on two workers, in 45 ms on the third
REPLICAS = {"read/small": 2, "read/large": 1}
SLOWER = 10.0  # live, so that the load of broker and client is small beside the workers'


class ShadowWatch:
    """The outcome of every query, and when shadows have run."""

    def __init__(self) -> None:
        self.outcomes: dict[Origin, str] = {}
        self.ran: dict[Origin, float] = {}
        self.last_s = 0.0  # the last arrival

    @property
    def beside(self) -> int:
        """The shadows that ran while queries came."""
        return sum(ran_s < self.last_s for ran_s in self.ran.values())

    @property
    def missed(self) -> set[Origin]:
        """The queries that were not answered in time."""
        return {origin for origin, outcome in self.outcomes.items() if outcome != ANSWERED}

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        """Record a node's event."""
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.record, Answer):
                assert effect.topic == RESULTS
                assert effect.record.origin not in self.outcomes
                self.outcomes[effect.record.origin] = outcome_of(effect.record)
                self.last_s = max(self.last_s, effect.record.created_s)
            elif isinstance(effect, Send) and effect.topic == SHADOWS:
                assert isinstance(effect.record, Work)
                self.ran[effect.record.origin] = now


def three_workers(folder: Path, share: float, slower: float = 1.0, **changes: Any) -> Path:
    """Write the pipeline; ``share`` of its queries have a shadow."""
    return a_cluster(
        folder,
        **{
            "children": {"read": ()}, "fan_out": 0, "batch_s": BATCH_S * slower, "devices": 3,
            "slo": f"{SLO_S * slower}s", "policies": {"one": {"replicas": REPLICAS}},
            "labels": {"shadow": {"share": share}} if share else {}, **changes,
        },
    )  # fmt: skip


def at(load: float) -> Arrivals:
    """Return Poisson arrivals at a load, in capacities."""
    return Renewal(load * SERVED_QPS, SECONDS)


def played(
    folder: Path, arrivals: Arrivals, share: float, *, seed: int = 0, hops: bool = False,
    **changes: Any,
) -> ShadowWatch:  # fmt: skip
    """Play a run in virtual time."""
    run = Run(
        file=read_pipeline_file(three_workers(folder, share, **changes)), policy="one", seed=seed,
        hops=hops, arrivals=arrivals, latency="" if hops else "p50",
    )  # fmt: skip
    seen = ShadowWatch()
    simulated(run, lambda sent: None, [seen])
    return seen


# ---------------------------------------------------------------------- in virtual time


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run with shadows beside its twin without; numbers of queries."""

    load: float
    seed: int
    commit: str
    queries: int
    missed_without: int
    missed_with: int
    cost: int  # missed with shadows only
    asked: int  # shadows
    ran: int
    beside: int  # of them while queries came


def pair(folder: Path, load: float, seed: int, name: str) -> Row:
    """Play a run with shadows and without."""
    without = played(folder, at(load), 0.0, seed=seed)
    beside = played(folder, at(load), SHARE, seed=seed)
    return Row(
        load=load, seed=seed, commit=name, queries=len(beside.outcomes),
        missed_without=len(without.missed), missed_with=len(beside.missed),
        cost=len(beside.missed - without.missed), asked=round(SHARE * len(beside.outcomes)),
        ran=len(beside.ran), beside=beside.beside,
    )  # fmt: skip


def pairs(file: RowFile[Row], seeds: int) -> Iterator[Row]:
    """Yield the row of every load and seed; play those that the file does not have."""
    known, name = {(row.load, row.seed): row for row in file.read()}, commit()
    with tempfile.TemporaryDirectory(prefix="headrace-shadows-") as folder:
        for load in LOADS:
            for seed in range(seeds):
                row = known.get((load, seed))
                if row is None:
                    row = pair(Path(folder), load, seed, name)
                    file.append(row)
                yield row


# ---------------------------------------------------------------------- live


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A live run: its load in capacities, queries, the part of them that was not answered in time,
    and the shadows that had run by the last answer."""

    load: float
    share: float
    queries: int
    missed: float
    shadows: int


def lived(bootstrap: str, load: float, share: float, seed: int, seconds: float) -> LiveRun:
    """Run the pipeline on a broker at a load in capacities, under Poisson arrivals."""
    with tempfile.TemporaryDirectory(prefix="headrace-shadows-") as folder:
        path = three_workers(Path(folder), share, SLOWER, policy="one")
        description = yaml.safe_load(path.read_text())
        del description["name"]
        with closing(Rig(bootstrap, Path(folder), description)) as rig:
            rig.up()
            rng = np.random.default_rng(seed)
            rate_qps = load * SERVED_QPS / SLOWER
            gaps_s = rng.exponential(1 / rate_qps, round(seconds * rate_qps))
            began_s = time.time() + 1.0
            for number, due_s in enumerate(began_s + np.cumsum(gaps_s)):
                rig.pass_time(max(0.0, float(due_s) - time.time()))
                rig.ask(str(number).encode())
            rig.until(lambda: len(rig.answers) >= len(rig.asked), "every answer")
            newest = newest_accuracy(rig.kafka, rig.name) if share else None
            missed = sum(outcome_of(answer) != ANSWERED for answer in rig.answers)
            return LiveRun(
                load=load, share=share, queries=len(rig.asked), missed=missed / len(rig.asked),
                shadows=sum(newest.shadow_counts.values()) if newest is not None else 0,
            )  # fmt: skip


def live(loads: Sequence[float], rounds: int, seconds: float) -> int:
    """Run with shadows and without in turn, print each run; return the exit code."""
    with borrow() as broker:
        return max([_live_at(broker.bootstrap, load, rounds, seconds) for load in loads])


def _live_at(bootstrap: str, load: float, rounds: int, seconds: float) -> int:
    shares: dict[float, list[float]] = {0.0: [], SHARE: []}
    for seed in range(rounds):
        for share, missed in shares.items():
            run = lived(bootstrap, load, share, seed, seconds)
            print(json.dumps(asdict(run)), flush=True)
            missed.append(run.missed)
    without, beside = (np.array(shares[share]) for share in (0.0, SHARE))
    spread = float(without.max() - without.min())
    more = float((beside - without).mean())
    print(
        f"at {load:g} capacities {more:+.2%} more are missed with shadows; runs without differ by "
        f"{spread:.2%}",
        flush=True,
    )
    return 1 if more > spread else 0


PAGE = """\
# Shadows cost no answer its deadline

`python -m benchmarks.shadows ROWS --page docs/results/shadows.md` plays and writes this page, with
the nodes that run live, in virtual time. Commit {commit}, {day}, {machine}.

- Three workers serve one task, two with the fast variant, one with the accurate one. Their capacity
  is {served:g} queries/s; the SLO is {slo:g} ms.
- {share:g} % of the queries have a
  [shadow](../reference/pipeline-file.md#shadows-accuracy-without-labels).
- Each of {seeds} seeds plays {seconds:g} s of Poisson arrivals, with a twin that has the same
  arrivals and no shadows. A batch takes its median and a hop no time, so every query missed "only
  with" shadows was missed because of them.
- The load is relative to the capacity. The last two columns have the shadows that ran while queries
  arrived, and those that ran after the last arrival.

| load | queries | missed without | missed with | only with | shadows due | beside queries | after |
| --- | --- | --- | --- | --- | --- | --- | --- |
{lines}

At and above the capacity no worker has room, so shadows run after the queries have ended.
`tests/simulation/test_shadows.py` has more cases: without admission, and with loads that rise from
a fifth to all of the capacity while shadows run.

{notes}"""
NOTES = Path(__file__).with_name("shadows_notes.md")  # of live runs, by hand


def page(rows: Sequence[Row]) -> str:
    """Return the page of the rows."""
    return PAGE.format(
        commit=" and ".join(dict.fromkeys(row.commit for row in rows)),
        day=datetime.now(UTC).date(), machine=machine(), served=SERVED_QPS, slo=SLO_S * 1e3,
        seconds=SECONDS, seeds=len({row.seed for row in rows}), share=SHARE * 100,
        lines="\n".join(_line(load, [row for row in rows if row.load == load]) for load in LOADS),
        notes=NOTES.read_text(),
    )  # fmt: skip


def _line(load: float, rows: Sequence[Row]) -> str:
    sums = [
        sum(getattr(row, name) for row in rows)
        for name in ("queries", "missed_without", "missed_with", "cost", "asked", "beside")
    ]
    after = sum(row.ran - row.beside for row in rows)
    return f"| {load:g} | {' | '.join(f'{each:,}' for each in (*sums, after))} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and write the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path, nargs="?", metavar="ROWS", help="one JSON row a line")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--page", type=Path, help="the page to write")
    parser.add_argument("--live", action="store_true", help="run on a local broker instead")
    parser.add_argument(
        "--loads", type=float, nargs="+", default=(0.6, 1.0), help="live: in capacities"
    )
    parser.add_argument("--rounds", type=int, default=3, help="live: of a run with and one without")
    parser.add_argument("--seconds", type=float, default=60.0, help="live: of each run")
    asked = parser.parse_args(arguments)
    if asked.live:
        return live(asked.loads, asked.rounds, asked.seconds)
    if asked.rows is None:
        parser.error("name a file of ROWS, or give --live")
    rows: list[Row] = []
    for row in pairs(RowFile(asked.rows, Row), asked.seeds):
        rows.append(row)
        print(json.dumps(asdict(row)), flush=True)
    if asked.page:
        asked.page.write_text(page(rows))
    return 1 if any(row.cost for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())

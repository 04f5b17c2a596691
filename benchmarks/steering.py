"""Measure dropping, rerouting and routing: the decisions for a late item, per query.

    python -m benchmarks.steering [--json]

Batches of 8 queries with one item each end at a worker whose policy reroutes. ``turn`` is the
baseline, the routing table alone; ``decision`` computes the item's overrun, whether its next slot
is in time, and an alternative slot: every item is late and finds a slot with spare capacity.
``sent`` measures the sends, marks on hops included.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from time import process_time

from control.per_query.rerouting import junctions
from control.per_query.routing import spreads
from headrace.config.pipeline_file import read_pipeline_file
from operators.serving.worker_rules import WorkerRules
from schemas.records import Hop, Item, Lease, Origin, Plan, Route, Settings, Work

BATCH = 8
ROUNDS = 1000
REPEATS = 9
FILE = Path(__file__).parent / "pipelines" / "noop.yaml"
LEASE = Lease(worker="w", task="a", variant="pass", batch=BATCH, slots=(0,), open_slot=0)
# Queries created at 1.0 have the deadline 61.0, which the first 13 slots miss. The last slot is
# fast enough, and the least accurate.
ROUTES = (
    *(Route("b", slot, 1 / 13, "", 5.0, 90.0) for slot in range(13)),
    Route("b", 13, 0.0, "", 1e9, 1.0),
)
PLAN = Plan(
    pipeline="noop", epoch=1, issued_s=0.0, reason="",
    settings=Settings(policy="loki", slo_s=60.0), leases=(LEASE,), routes=ROUTES,
)  # fmt: skip


def pieces() -> list[tuple[Work, str, Item]]:
    """Return one finished batch."""
    hop = Hop(
        task="a", variant="pass", worker="w", epoch=1, received_s=2.0, started_s=2.0,
        finished_s=2.001, batch=BATCH, released="full",
    )  # fmt: skip
    item = Item(branch=(0, 0), value=b"x", path=(hop,))
    return [
        (
            Work(
                query_id=f"0-{offset}", origin=Origin(0, offset), task="a", created_s=1.0,
                deadline_s=61.0, epoch=1, items=(item,),
            ),
            "b",
            item,
        )
        for offset in range(BATCH)
    ]  # fmt: skip


def timed_us(act: Callable[[], object]) -> float:
    """Return CPU microseconds per query of a batch."""
    began = process_time()
    for _ in range(ROUNDS):
        act()
    return (process_time() - began) / (ROUNDS * BATCH) * 1e6


def figures() -> dict[str, float]:
    """Measure; return medians over the repeats, their spread, and the ratio to the table alone."""
    pipeline = read_pipeline_file(FILE).pipeline
    rules = WorkerRules(PLAN, pipeline, LEASE, lambda variant, batch: 0.001, 0.0)
    spread = spreads(ROUTES, "a/pass")["b"]
    junction = junctions(ROUTES, "a/pass", pipeline, 60.0, 1, 0.0)["b"]
    batch = pieces()
    assert junction.in_time(1.0, 58.9, 2.0)[1] == 13

    def turn() -> None:
        for _ in batch:
            spread.pick()

    def decision() -> None:
        for work, _, item in batch:
            rules.overrun_s(work, item, 2.001)
            junction.in_time(1.0, work.deadline_s - 2.001, 2.001)

    acts: dict[str, Callable[[], object]] = {
        "turn": turn,
        "decision": decision,
        "sent": lambda: rules.onward(batch, 2.001),
    }
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(REPEATS):
        for name, act in acts.items():
            found[name].append(timed_us(act))
    rows = {
        f"{name}_us{suffix}": of(times)
        for name, times in found.items()
        for suffix, of in (("", statistics.median), ("_min", min), ("_max", max))
    }
    pairs = zip(found["decision"], found["turn"], strict=True)
    rows["ratio"] = statistics.median(one / other for one, other in pairs)
    return rows


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="The cost of dropping, rerouting and routing.")
    parser.add_argument("--json", action="store_true")
    asked, found = parser.parse_args(), figures()
    if asked.json:
        print(json.dumps(found))
        return
    for name in ("turn", "decision", "sent"):
        print(
            f"{name:>8}: {found[f'{name}_us']:.2f} us per query "
            f"({found[f'{name}_us_min']:.2f} to {found[f'{name}_us_max']:.2f})"
        )
    print(f"a decision takes {found['ratio']:.1f} times what the routing table alone takes")


if __name__ == "__main__":
    main()

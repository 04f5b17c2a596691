"""Measure a worker's decisions: drop, batch and route, per query, without I/O.

    python -m benchmarks.handle [--json]

Batches of 8 queries with one item each go through ``Worker.handle``: arrival, the batch's start
with the check against each deadline, the outputs, and the sends to the next task over three
slots. The baseline in the same run is the construction of the output records alone. Observers (the
journal at its default level, the metrics) are measured over the same events.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from headrace.config.pipeline_file import read_pipeline_file
from operators.serving.worker import Worker
from schemas.effects import (
    Arrived,
    Effect,
    Event,
    Infer,
    Inferred,
    Loaded,
    Observer,
    Send,
    Woke,
    work_topic,
)
from schemas.records import Hop, Item, Lease, Origin, Plan, Route, Settings, Work
from streams.observers.journal import Journal
from streams.observers.metrics import Metrics

BATCH = 8
ROUNDS = 400
REPEATS = 9
FILE = Path(__file__).parent / "pipelines" / "noop.yaml"


def prepared() -> Worker:
    """Return a worker of task a, loaded and leased, that routes to three slots of task b."""
    worker = Worker(
        "w", read_pipeline_file(FILE).pipeline, "cpu", incarnation=0.0,
        latency=lambda variant, batch: 0.001,
    )  # fmt: skip
    plan = Plan(
        pipeline="noop", epoch=1, issued_s=0.0, reason="", 
        settings=Settings(policy="static", slo_s=60.0),
        leases=(Lease(worker="w", task="a", variant="pass", batch=BATCH, slots=(0,), open_slot=0),),
        routes=tuple(Route("b", slot, share) for slot, share in ((0, 0.5), (1, 0.3), (2, 0.2))),
    )  # fmt: skip
    worker.handle(Woke(), 0.0)
    worker.handle(Arrived(plan, "plans", 0, 0, 0.0), 0.0)
    worker.handle(Loaded("a/pass", 0.0), 0.0)
    return worker


def works(first: int) -> list[Work]:
    """Return one batch of arriving work."""
    return [
        Work(
            query_id=f"0-{offset}", origin=Origin(0, offset), task="a", created_s=1.0,
            deadline_s=61.0, epoch=1, items=(Item(value=b"x" * 500),),
        )
        for offset in range(first, first + BATCH)
    ]  # fmt: skip


def handled_us(observers: Sequence[Observer] = ()) -> float:
    """Return microseconds per query of ``handle``, or of its observers if given."""
    worker, spent = prepared(), 0.0

    def told(event: Event, now: float) -> Sequence[Effect]:
        nonlocal spent
        began = perf_counter()
        effects = worker.handle(event, now)
        if observers:
            began = perf_counter()
            for observer in observers:
                observer.saw("w", event, effects, now)
        spent += perf_counter() - began
        return effects

    for turn in range(ROUNDS):
        batch = works(turn * BATCH)
        arrivals = [Arrived(w, work_topic("a"), 0, w.origin.offset, 1.0) for w in batch]
        for arrival in arrivals:
            told(arrival, 2.0)
        infer = next(e for e in told(Woke(), 2.0) if type(e) is Infer)
        done = Inferred(infer.job, tuple([value] for value in infer.values), 2.0, 2.001)
        effects = told(done, 2.001)
        assert sum(type(e) is Send for e in effects) == BATCH
    return spent / (ROUNDS * BATCH) * 1e6


def records_us() -> float:
    """Return microseconds per query of constructing the records alone."""
    spent = 0.0
    for turn in range(ROUNDS):
        batch = works(turn * BATCH)
        began = perf_counter()
        for work in batch:
            hop = Hop(
                task="a", variant="pass", worker="w", epoch=1, received_s=2.0, started_s=2.0,
                finished_s=2.001, batch=BATCH, released="full",
            )  # fmt: skip
            item = Item(branch=(0, 0), credit=10**18, value=b"", path=(hop,))
            Send("work.b", Work(
                query_id=work.query_id, origin=work.origin, task="b", created_s=1.0,
                deadline_s=61.0, epoch=1, items=(item,),
            ), 0)  # fmt: skip
        spent += perf_counter() - began
    return spent / (ROUNDS * BATCH) * 1e6


def figures() -> dict[str, float]:
    """Measure; return medians over the repeats, their spread, and the ratio."""
    pipeline = read_pipeline_file(FILE).pipeline
    handled = [handled_us() for _ in range(REPEATS)]
    made = [records_us() for _ in range(REPEATS)]
    journal = [handled_us([Journal("noop")]) for _ in range(REPEATS)]
    metrics = [handled_us([Metrics(pipeline)]) for _ in range(REPEATS)]
    return {
        "handle_us_per_query": statistics.median(handled),
        "handle_us_min": min(handled),
        "handle_us_max": max(handled),
        "records_us_per_query": statistics.median(made),
        "ratio": statistics.median(h / m for h, m in zip(handled, made, strict=True)),
        "journal_us_per_query": statistics.median(journal),
        "metrics_us_per_query": statistics.median(metrics),
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="The cost of a worker's decisions.")
    parser.add_argument("--json", action="store_true")
    asked, found = parser.parse_args(), figures()
    if asked.json:
        print(json.dumps(found))
        return
    print(
        f"a worker's handle: {found['handle_us_per_query']:.1f} us per query "
        f"({found['handle_us_min']:.1f} to {found['handle_us_max']:.1f}), "
        f"{found['ratio']:.2f} times the records it makes; watched by the journal "
        f"{found['journal_us_per_query']:.2f} us more, by the metrics "
        f"{found['metrics_us_per_query']:.2f} us more"
    )


if __name__ == "__main__":
    main()

"""Measure routing tables: twenty workers on two levels, filled most accurate first.

    python -m benchmarks.routing [--json]

Two variants locate on six workers, four variants read on fourteen; there is a table for every
sending variant, with spare capacity. Loki's code takes 0.34 ms for its tables on traffic, measured
elsewhere (CPU of one core); the baseline in the same run is shares by throughput, without accuracy,
senders and spare capacity. ``reaching`` measures the whole way from leases to a plan.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import replace
from time import process_time

from control.policies import POLICIES
from control.problem.forecast import routes, throughputs
from control.problem.routes import BALANCED, PAPER, FillOrder, Receiver, most_accurate_first
from control.rollout.placement import Member
from control.rollout.plan_builder import ExpectedTraffic, assemble
from profiles.measurements import Entry, FanOut, Latency
from profiles.profile_table import ProfileTable
from schemas.pipeline import Pipeline, Task, Variant
from schemas.records import Lease, Plan, Settings

ROUNDS = 500
REPEATS = 9
DEMAND = 170.0  # queries/s; the locators serve 180
FAN_OUT = 10.0
LOCATORS = {"large": (24.0, 0.95, 3), "small": (36.0, 0.8, 3)}  # items/s, accuracy, workers
READERS = {
    "b6": (80.0, 0.95, 4), "b4": (140.0, 0.93, 4), "b2": (210.0, 0.9, 3), "b0": (320.0, 0.85, 3),
}  # fmt: skip


def pipeline() -> Pipeline:
    """Return a pipeline of two tasks with these variants."""
    variants = {
        task: tuple(Variant(task=task, name=name, operator="m:C", batch=8) for name in known)
        for task, known in (("locate", LOCATORS), ("read", READERS))
    }
    return Pipeline(
        name="two-levels",
        slo_s=0.5,
        tasks=(
            Task(name="locate", variants=variants["locate"], children=("read",)),
            Task(name="read", variants=variants["read"]),
        ),
        policies=(replace(POLICIES["loki"].usual, name="loki"),),
        policy="loki",
    )


def profile() -> ProfileTable:
    """Return a profile of every variant at batches of 1 and 8; items/s double at 8."""
    return ProfileTable(
        "two-levels",
        tuple(
            Entry(
                task=task, variant=name, device="cpu", operator="m:C", weights_sha256="",
                load_s=0.0, memory_bytes=0, accuracy=accuracy,
                children={"read": FanOut(FAN_OUT, {int(FAN_OUT): 1.0})} if task == "locate" else {},
                latency=(a_row(1, 0.5 * rate), a_row(8, rate)),
            )
            for task, known in (("locate", LOCATORS), ("read", READERS))
            for name, (rate, accuracy, _) in known.items()
        ),
    )  # fmt: skip


def a_row(batch: int, items_per_s: float) -> Latency:
    """Return a latency row without spread."""
    seconds = batch / items_per_s
    return Latency(
        batch=batch, repeats=1, mean_s=seconds, p50_s=seconds, p90_s=seconds, p95_s=seconds,
        p99_s=seconds,
    )  # fmt: skip


def leases() -> list[Lease]:
    """Return one lease per worker, each with its own slot."""
    found: list[Lease] = []
    for task, known in (("locate", LOCATORS), ("read", READERS)):
        names = [name for name, (*_, count) in known.items() for _ in range(count)]
        found += [
            Lease(
                worker=f"{task}-{slot}", task=task, variant=name, batch=8, slots=(slot,),
                open_slot=slot,
            )
            for slot, name in enumerate(names)
        ]  # fmt: skip
    return found


def receivers() -> dict[str, list[Receiver]]:
    """Return the same workers as receivers of the tables."""
    known = {"locate": LOCATORS, "read": READERS}
    found: dict[str, list[Receiver]] = {}
    for lease in leases():
        rate, accuracy, _ = known[lease.task][lease.variant]
        found.setdefault(lease.task, []).append(
            Receiver(
                variant=lease.key, slot=lease.open_slot, accuracy=accuracy,
                capacity_qps=rate, latency_s=8 / rate,
            )
        )  # fmt: skip
    return found


def timed_ms(act: Callable[[], object]) -> float:
    """Return CPU milliseconds per call."""
    began = process_time()
    for _ in range(ROUNDS):
        act()
    return (process_time() - began) / ROUNDS * 1e3


def figures() -> dict[str, float]:
    """Measure; return medians over the repeats, their spread, and the ratio to shares by
    throughput."""
    tree, table, held, pools = pipeline(), profile(), leases(), receivers()
    members = [Member(name=x.worker, device="cpu", loaded=x.key, serves=x.task) for x in held]
    rates = throughputs(held, dict.fromkeys((x.worker for x in held), "cpu"), table)
    settings = Settings(policy="loki", slo_s=0.5)
    base = Plan(pipeline=tree.name, epoch=1, issued_s=0.0, reason="", settings=settings)
    capped: FillOrder = replace(BALANCED, up_to=0.9)

    def tables(filling: FillOrder) -> Callable[[], object]:
        return lambda: most_accurate_first(tree, pools, DEMAND, lambda v, c: FAN_OUT, filling)

    acts: dict[str, Callable[[], object]] = {
        "throughput": lambda: routes(tree, held, rates),
        "paper": tables(PAPER),
        "balanced": tables(capped),
        "reaching": lambda: assemble(base, held, tree, table, members, ExpectedTraffic(DEMAND)),
    }
    found: dict[str, list[float]] = {name: [] for name in acts}
    for _ in range(REPEATS):
        for name, act in acts.items():
            found[name].append(timed_ms(act))
    rows = {
        f"{name}_ms{suffix}": of(times)
        for name, times in found.items()
        for suffix, of in (("", statistics.median), ("_min", min), ("_max", max))
    }
    pairs = zip(found["balanced"], found["throughput"], strict=True)
    rows["ratio"] = statistics.median(one / other for one, other in pairs)
    rows["routes"] = float(len(most_accurate_first(
        tree, pools, DEMAND, lambda v, c: FAN_OUT, capped)))  # fmt: skip
    return rows


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="The cost of routing tables.")
    parser.add_argument("--json", action="store_true")
    asked, found = parser.parse_args(), figures()
    if asked.json:
        print(json.dumps(found))
        return
    for name in ("throughput", "paper", "balanced", "reaching"):
        print(
            f"{name:>10}: {found[f'{name}_ms']:.3f} ms "
            f"({found[f'{name}_ms_min']:.3f} to {found[f'{name}_ms_max']:.3f})"
        )
    print(
        f"{found['routes']:.0f} routes for 20 workers; balanced tables take "
        f"{found['ratio']:.1f} times what shares by throughput take"
    )


if __name__ == "__main__":
    main()

"""The section of docs/results/kairos.md about the time until a device is free (K8).

A dispatcher, as it runs in ingress, decides in virtual time over devices that draw their latencies
from the measured repeats. Before each decision the time that it predicts until each busy device has
finished is compared with the true one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from benchmarks.papers.kairos import MODELS, TASK, measured_repeats
from benchmarks.papers.kairos_cases import HOP_S, REPEATS, case_file
from benchmarks.papers.kairos_compare import BUDGET
from benchmarks.papers.kairos_learning import Repeats
from benchmarks.papers.kairos_tables import lines_of, mix_text
from control.policies.kairos.device_mixes import Floats
from control.policies.kairos.provisioning import rank
from headrace.config.pipeline_file import PipelineFile
from headrace.planning.device_mix import MixRequest, pool_of
from headrace.roles.dispatching import central_queues
from operators.dispatch.dispatch_queue import ALONE
from operators.dispatch.dispatcher import Dispatcher
from schemas.records import ANSWERED, Completion, Lease, Origin, Plan, Settings, Work

QUERIES = 10_000
LOAD = 0.8  # of the bound of the mix
SEED = 0

REMAINING = f"""\
## The time until a device is free

Error of the time that a dispatcher predicts until a device has finished (K8), in ms, at each of its
decisions, over busy devices. Devices draw their latencies from the measured repeats; each hop
takes {HOP_S * 1e3:g} ms; the load is {LOAD:g} of the bound of the mix ranked first ({QUERIES:,}
queries, one seed). `true`: the mean of the true time. Errors of several queries at
a device add up.

"""


@dataclass(frozen=True, slots=True)
class Remaining:
    """Seconds until devices were free, predicted and true, one value per decision and device."""

    predicted_s: Floats
    true_s: Floats


def remaining_section(data: Path, out: Path) -> str:
    """Return the section about predicted and true times."""
    rows = []
    for model in MODELS:
        file = _with_hops(case_file(out, model, REPEATS))
        pool, _ = pool_of(file, MixRequest())
        best = rank(pool, BUDGET, "fluid", 1).best[0]
        names = [each.name for each in pool.types]
        repeats = measured_repeats(data, model)
        sizes = np.random.default_rng(SEED).choice(
            pool.sizes.sizes, QUERIES, p=pool.sizes.probabilities
        )
        kinds = [name for name, n in zip(names, best.counts, strict=True) for _ in range(n)]
        found = played(file, kinds, repeats, sizes.tolist(), LOAD * best.bound_qps)
        rows.append([model, mix_text(best.counts), *_cells(found)])
    head = ["model", "mix", "values", "true", "median error", "p99", "largest"]
    return REMAINING + lines_of(head, rows) + "\n"


def _with_hops(file: PipelineFile) -> PipelineFile:
    return replace(file, pipeline=replace(file.pipeline, comm_s=HOP_S))


def _cells(found: Remaining) -> list[str]:
    errors_ms = np.abs(found.predicted_s - found.true_s) * 1e3
    figures = [float(found.true_s.mean()) * 1e3, *np.quantile(errors_ms, (0.5, 0.99, 1.0))]
    return [f"{len(errors_ms):,}", *(f"{each:.2f}" for each in figures)]


def played(
    file: PipelineFile, kinds: Sequence[str], repeats: Repeats, sizes: Sequence[int], qps: float
) -> Remaining:
    """Dispatch queries of these sizes, which come at exponential gaps, to devices of ``kinds``.

    Times are in seconds, ``repeats`` by type and size.
    """
    rng = np.random.default_rng(SEED)
    dispatcher = _dispatcher(file, kinds)
    free_s = [0.0] * len(kinds)  # when each device has truly finished
    # Queries (None) and completions by their arrival at the dispatcher, in ascending order.
    times_s = np.cumsum(rng.exponential(1 / qps, len(sizes))).tolist()
    coming: list[tuple[float, int, Completion | None]] = [
        (at_s, number, None) for number, at_s in enumerate(times_s)
    ]
    predicted, true = list[float](), list[float]()
    wakes_s = float("inf")
    while coming:
        now = min(coming[0][0], wakes_s)
        if now == coming[0][0]:
            _, number, done = heappop(coming)
            if done is None:
                dispatcher.add(_work(number, sizes[number], now, file.pipeline.slo_s))
            else:
                dispatcher.completed(done, now)
        for slot, seconds in dispatcher.remaining_s(now).items():
            predicted.append(seconds)
            true.append(max(free_s[slot] - now, 0.0))
        for waiting, slot in dispatcher.decide(now)[0]:
            work, arrives_s = waiting.work, now + HOP_S
            run_s = float(rng.choice(repeats[kinds[slot]][work.size]))
            begins_s = max(arrives_s, free_s[slot])
            free_s[slot] = begins_s + run_s
            ended = _completion(work, slot, kinds[slot], begins_s - arrives_s, run_s)
            heappush(coming, (free_s[slot] + HOP_S, len(sizes) + work.origin.offset, ended))
        wakes_s = dispatcher.next_s(now)
    return Remaining(np.array(predicted), np.array(true))


def _dispatcher(file: PipelineFile, kinds: Sequence[str]) -> Dispatcher:
    """Return the dispatcher of an ingress, with a plan that has these devices."""
    pipeline = file.pipeline
    found = next(each for each in central_queues(file, ALONE) if isinstance(each, Dispatcher))
    leases = tuple(
        Lease(
            worker=f"{kind}-{slot}", task=TASK, variant=pipeline.root.variants[0].name, batch=1,
            slots=(slot,), open_slot=slot, type=kind,
        )
        for slot, kind in enumerate(kinds)
    )  # fmt: skip
    settings = Settings(policy="kairos", slo_s=pipeline.slo_s)
    plan = Plan(
        pipeline=pipeline.name, epoch=1, issued_s=0.0, reason="", settings=settings, leases=leases
    )
    found.change(plan, 0.0)
    return found


def _work(number: int, size: int, now: float, slo_s: float) -> Work:
    return Work(
        query_id=str(number), origin=Origin(0, number), task=TASK, created_s=now,
        deadline_s=now + slo_s, epoch=1, size=size,
    )  # fmt: skip


def _completion(work: Work, slot: int, kind: str, queued_s: float, run_s: float) -> Completion:
    return Completion(
        query_id=work.query_id, origin=work.origin, slot=slot, worker=f"{kind}-{slot}", type=kind,
        setting=f"{TASK}/v", size=work.size, queued_s=queued_s, run_s=run_s, outcome=ANSWERED,
    )  # fmt: skip

"""How long did things take on this machine? As seen in the warm-up of a live run, for simulations.

Hops, lags and batches depend on the machine, on what else runs there and on how many records a
second there are. What is compared comes after the warm-up, so that nothing judges itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from headrace.wiring import latency_of
from profiles.table import EMULATED, ProfileTable
from schemas.records import ANSWERED, Answer, Hop
from streams.delays import LOCAL_BROKER, STAMP_S, Hops, World

FEWEST = 100  # of a kind that tell how long such things take
# Quantiles that are drawn between. Dense at the end: of a query's batches and hops one in ten is
# beyond a 99 % quantile, and a straight line from there to the longest is far above what was seen.
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.97, 0.98, 0.99, 0.993, 0.996, 0.998, 0.999, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A batch that ran; ``received_s``: when the first known item of it came."""

    worker: str
    variant: str  # "task/variant"
    size: int
    received_s: float
    started_s: float
    finished_s: float


def seen(
    answers: Iterable[Answer], profile: ProfileTable, devices: Mapping[str, str], dilate: float
) -> World:
    """What these answers tell; where they are too few, built-in hops. ``devices`` has the device
    of each worker."""
    known = list(answers)
    ran = batches(known)
    lags = [dilate * s for s in lags_s(ran)]
    # Ways are seen from the end of a batch on, so the lag is in them; by its mean, as that of
    # both together is what must be right.
    lag_s = float(np.mean(lags)) if len(lags) >= FEWEST else 0.0
    between = [max(0.0, dilate * s - lag_s) for answer in known for s in hops_s(answer)]
    # Time stamps are early by half a ms on average, which the simulation has apart.
    early_s = STAMP_S / 4  # of each of two hops
    into = [max(0.0, dilate * s - early_s) for answer in known for s in ways_in_s(answer)]
    out = [max(0.0, dilate * s - lag_s) for answer in known for s in ways_out_s(answer)]
    real = [
        (each.finished_s - each.started_s)
        / latency_of(profile, devices[each.worker])(each.variant, each.size)
        for each in ran
        if devices.get(each.worker, EMULATED) != EMULATED
    ]
    return World(
        hops=_knots(between) or LOCAL_BROKER,
        ways_in=_knots(into),
        ways_out=_knots(out),
        lags=_knots(lags),
        stretch=_knots(real),
    )


def told(world: World) -> dict[str, dict[str, float]]:
    """Some of the quantiles by their names in a certificate, times in ms."""
    hops = () if world.hops is LOCAL_BROKER else world.hops
    ways = {"hop_ms": hops, "way_in_ms": world.ways_in, "way_out_ms": world.ways_out}
    times = {name: _some(knots, 1e3) for name, knots in (*ways.items(), ("lag_ms", world.lags))}
    return {**times, "stretch": _some(world.stretch, 1.0)}


def ways_in_s(answer: Answer) -> Iterator[float]:
    """Half of the way from the producer to the first worker, which is over two hops."""
    first = next((path[0] for path in answer.paths if path), None)
    if first is not None and _read_at_once(first):
        yield (first.received_s - answer.created_s) / 2


def ways_out_s(answer: Answer) -> Iterator[float]:
    """From the end of the last batch to the answer."""
    ends = [path[-1].finished_s for path in answer.paths if path]
    if ends and answer.outcome == ANSWERED and not answer.incomplete:
        yield answer.answered_s - max(ends)


def hops_s(answer: Answer) -> Iterator[float]:
    """How long items of an answered query were on their way from one worker to the next.

    A worker with much to do stops reading, and what it then receives has waited on the broker:
    only those count that waited for less than their batch took.
    """
    ways = set()
    for path in answer.paths:
        for before, after in pairwise(path):
            way = (before.worker, before.finished_s, after.received_s)
            # Items that left together and came together are one record.
            if _read_at_once(after) and way not in ways:
                ways.add(way)
                yield after.received_s - before.finished_s


def _read_at_once(hop: Hop) -> bool:
    return hop.started_s - hop.received_s <= hop.finished_s - hop.started_s


def batches(answers: Iterable[Answer]) -> list[Batch]:
    """The batches in which items of these answers ran, by worker and time."""
    hops: dict[tuple[str, float], Hop] = {}
    for answer in answers:
        for hop in (hop for path in answer.paths for hop in path):
            first = hops.get((hop.worker, hop.started_s))
            if first is None or hop.received_s < first.received_s:
                hops[hop.worker, hop.started_s] = hop
    return [
        Batch(
            worker=hop.worker, variant=f"{hop.task}/{hop.variant}", size=hop.batch,
            received_s=hop.received_s, started_s=hop.started_s, finished_s=hop.finished_s,
        )
        for _, hop in sorted(hops.items())
    ]  # fmt: skip


def lags_s(ran: Sequence[Batch]) -> Iterator[float]:
    """From the end of a batch until the next one began, where that one's items were waiting."""
    for before, after in pairwise(ran):
        lag_s = after.started_s - before.finished_s
        waited = after.worker == before.worker and after.received_s <= before.finished_s
        # More than a batch is rather one between them of which nothing came through.
        if waited and 0 <= lag_s <= before.finished_s - before.started_s:
            yield lag_s


def _knots(found: Sequence[float]) -> Hops:
    if len(found) < FEWEST:
        return ()
    return tuple(zip(SHARES, np.quantile(found, SHARES).tolist(), strict=True))


def _some(knots: Hops, factor: float) -> dict[str, float]:
    shown = {0.5: "p50", 0.9: "p90", 0.99: "p99", 1.0: "most"}
    return {shown[share]: round(value * factor, 3) for share, value in knots if share in shown}

"""Measure one system under one workload: capacity, then loads relative to it and absolute ones."""

import asyncio
import itertools
import math
import os
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.connections import Call
from benchmarks.peers.open_loop import (
    SERVED,
    Ask,
    Ended,
    OpenLoop,
    answer_within,
    closed_loop,
    warmed_up,
)
from benchmarks.peers.processes import Tree, spent_s
from benchmarks.peers.systems import SYSTEMS, Running
from benchmarks.peers.workloads import Workload
from streams.kafka.kafka_errors import BrokerError

CAPACITY = "capacity"
SHARES = (0.5, 1.0, 1.5)  # of the system's own capacity
IN_FLIGHT = 32  # of the closed loop
READY_WITHIN_S = 120.0
SETTLE_S = 0.5  # before each measurement, at its rate; afterwards, without load


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement. ``load``: "capacity", a share of it as "50 %", or a rate as "50/s".

    Served queries were answered correctly, under an open loop within the SLO. Quantiles are over
    all queries, those not served at infinity (None). CPU is of all of the system's processes, per
    served query. ``place``: the day and the machine, "" in rows of before 2026-12.
    """

    commit: str
    workload: str
    system: str
    protocol: str
    round: int
    load: str
    offered_per_s: float | None
    served_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    cpu_ms: float | None
    client_cpu_ms: float | None
    endings: dict[str, int]
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The length and the seed (``round``) of a measurement; the rows have ``commit`` and
    ``place``."""

    commit: str
    place: str
    round: int
    seconds: float
    protocols: Sequence[str]  # empty: all


def measure(name: str, workload: Workload, plan: Plan, logs: Path) -> list[Row]:
    """Start a system, measure it with each of its protocols, and end it."""
    with SYSTEMS[name].start(workload, logs) as running:
        rows: list[Row] = []
        for protocol in running.calls:
            if not plan.protocols or protocol in plan.protocols:
                measuring = _measure_protocol(
                    name, protocol, workload, plan, running, cold=not rows
                )
                rows += asyncio.run(measuring)
        return rows


async def _measure_protocol(
    name: str, protocol: str, workload: Workload, plan: Plan, running: Running, *, cold: bool
) -> list[Row]:
    rows: list[Row] = []

    def add(load: str, offered: float | None, seen: "Seen") -> Row:
        rows.append(
            Row(
                commit=plan.commit, workload=workload.name, system=name, protocol=protocol,
                round=plan.round, load=load, offered_per_s=offered, place=plan.place,
                **figures(seen),
            )
        )  # fmt: skip
        return rows[-1]

    await _until_right(running, protocol, workload)
    async with running.calls[protocol]() as call:
        ask = asking(call, workload)
        if cold:
            await warmed_up(ask, IN_FLIGHT)
        else:
            await closed_loop(ask, IN_FLIGHT, SETTLE_S)
        looping = closed_loop(ask, IN_FLIGHT, plan.seconds)
        flat_out = await _watched(running.tree, looping, plan.seconds)
        capacity = add(CAPACITY, None, flat_out).served_per_s
        loads = {f"{rate:g}/s": rate for rate in workload.rates}
        loads |= {f"{share:.0%}".replace("%", " %"): share * capacity for share in SHARES}
        for load, rate in loads.items():
            loop = OpenLoop(ask, workload.slo_s, np.random.default_rng(plan.round))
            await loop.offer(rate, SETTLE_S)
            offering = loop.offer(rate, plan.seconds)
            add(load, rate, await _watched(running.tree, offering, plan.seconds))
            await asyncio.sleep(SETTLE_S)  # drains the backlog of an overload
    return rows


def asking(call: Call, workload: Workload) -> Ask:
    """Return a function that sends the payloads in turn and returns how each query ended."""
    payloads = itertools.cycle(workload.payloads)

    async def ask(left_s: float) -> str:
        ending, _ = await call(next(payloads), left_s)
        return str(ending)

    return ask


async def _until_right(running: Running, protocol: str, workload: Workload) -> None:
    """Wait until the system answers, then check that it answers every payload correctly."""
    until_s = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            async with running.calls[protocol]() as call:
                ending = await answer_within(asking(call, workload), 5.0)
                if ending == SERVED:
                    await _check(call, workload)
                    return
        except (OSError, BrokerError) as error:  # not listening yet
            ending = str(error)
        if time.monotonic() > until_s:
            raise TimeoutError(f"{protocol}: no answer within {READY_WITHIN_S:g} s ({ending})")
        await asyncio.sleep(0.5)


async def _check(call: Call, workload: Workload) -> None:
    for payload, answer in zip(workload.payloads, workload.answers, strict=True):
        ending, body = await call(payload, 10.0)
        if ending != SERVED or answer not in body:
            raise ValueError(f"{ending}: {body[:200]!r}, where {answer[:200]!r} is right")


# ---------------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Seen:
    """The results of a load: the queries, the seconds for which they were sent, CPU seconds of the
    system and of the load itself."""

    ended: Sequence[Ended]
    seconds: float
    cpu_s: float
    client_cpu_s: float


async def _watched(tree: Tree, load: Coroutine[Any, Any, list[Ended]], seconds: float) -> Seen:
    cpu, client = tree.cpu_s(), _own_cpu_s()
    ended = await load
    return Seen(ended, seconds, spent_s(cpu, tree.cpu_s()), _own_cpu_s() - client)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system


def figures(seen: Seen) -> dict[str, object]:
    """Return the figures of ``Row`` for one load."""
    took_ms = [each.took_s * 1e3 if each.ending == SERVED else math.inf for each in seen.ended]
    served = sum(ms < math.inf for ms in took_ms)
    return {
        "served_per_s": served / seen.seconds,
        "p50_ms": _quantile(took_ms, 0.5),
        "p99_ms": _quantile(took_ms, 0.99),
        "cpu_ms": seen.cpu_s * 1e3 / served if served else None,
        "client_cpu_ms": seen.client_cpu_s * 1e3 / served if served else None,
        "endings": dict(Counter(each.ending for each in seen.ended)),
    }


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Return the value at that rank, or None if it is infinite."""
    found = sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else math.inf
    return found if found < math.inf else None

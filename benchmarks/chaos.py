"""Inject random faults under load and check that every query gets exactly one answer.

    python -m benchmarks.chaos [--minutes 3] [--seed 1] [--rate 50] [--nodes 3] [--longest 10]
                               [--slo 1] [--kinds "kill node,freeze node"] [--json]
                               [--pipeline dispatched]

A pipeline of two stages with fan-out runs on its own broker, with one process per role and two
control apps. Faults follow each other (benchmarks/chaos_kinds.py), each after a second in which
the pipeline answered all queries in time. At the end, invariants are checked over all records
(benchmarks/chaos_account.py), and the times to recover against the bounds of the kinds. If one is
violated or missed, it is printed with the command that repeats the faults, and the exit code is 1.
``--longest 10`` leaves out cuts and outages of 20 to 90 s, for a short run.

Times to recover count from the beginning of a fault (of a broker outage: from its end). One ends at
the creation of the last query that was not answered in time, or is 0. The other ends when the
pipeline is whole: every role is back and all queries of a second were answered in time. The return
of a node of three is an event of its own, as it takes processor time from the others: later queries
count from it.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.chaos_account import Record, broken
from benchmarks.chaos_faults import CONTROLS
from benchmarks.chaos_kinds import DISK_FULL, HOST, LONG_HOST, chosen, drawn, lacking, perform
from benchmarks.chaos_pipelines import PIPELINES, SLOTS, description, write_profile
from benchmarks.chaos_watch import Watch
from benchmarks.fault_scene import Fault, Kind, Scene
from benchmarks.hosts import Host
from benchmarks.machine_faults import small_disk
from benchmarks.machine_speed import machine, machine_line
from benchmarks.received_answers import ends, in_time
from benchmarks.rig import Rig, Stuck
from benchmarks.tcp_proxy import Proxies
from headrace.broker import local_broker as local
from headrace.config.topology import Role

WHOLE_WITHIN_S = 60.0
ENDED_WITHIN_S = 10.0
PROXIED = 8  # roles: three workers, ingress, egress, a dispatcher, two control apps
ALL = "all"
# A frozen node or a cut network answers no request: clients try again after this time.
PROPERTIES = {
    "socket.timeout.ms": "2000",
    "request.timeout.ms": "2000",
    "topic.metadata.refresh.interval.ms": "500",
}


@dataclass(frozen=True, slots=True)
class Suffered:
    """A fault that happened. Epoch seconds: the pipeline was whole before the fault, the fault
    began, a lost node began to return, the pipeline was whole again."""

    fault: Fault
    before_s: float
    began_s: float
    whole_s: float
    returns_s: tuple[float, ...] = ()

    def after_s(self, at_s: float) -> float:
        """Return the seconds from the last event before a time to that time, 0 before the fault."""
        events = (self.began_s, *self.returns_s)
        return max(0.0, at_s - max((e for e in events if e <= at_s), default=at_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """Faults of one kind: their number, queries not answered in time, and times to recover (s)."""

    faults: int
    hurt: int
    recovered_p50_s: float
    recovered_max_s: float
    whole_p50_s: float
    whole_max_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The result of a run. ``commits`` were observed to grow, ``slots`` by epoch have one reader by
    their plan. ``most_mb``: the largest resident memory of a role."""

    minutes: float
    rate: float
    seed: int
    nodes: int
    longest_s: float
    slo_s: float
    kinds: Sequence[str]
    pipeline: str
    queries: int
    outcomes: str
    plans: int
    most_mb: Mapping[str, int]
    commits: int
    slots: int
    recoveries: Mapping[str, Recovery]
    broken: Sequence[str]


# ---------------------------------------------------------------------- a run


def run(
    rig: Rig, scene: Scene, seed: int, minutes: float, kinds: Mapping[str, Kind]
) -> tuple[list[Suffered], list[str]]:
    """Inject faults for ``minutes``; return the faults that happened and the violations so far."""
    suffered: list[Suffered] = []
    try:
        until_s = time.monotonic() + 60 * minutes
        for fault in drawn(np.random.default_rng(seed), list(rig.roles), kinds):
            if time.monotonic() > until_s:
                break
            suffered.append(_suffer(rig, scene, fault))
        settle(rig)
    except Stuck as stuck:
        rig.offer(0)
        rig.give_up()
        with suppress(Stuck):
            rig.until(lambda: not rig.waiting, "the last answers")
        return suffered, [f"the pipeline recovers from every fault: {stuck}"]
    return suffered, []


def _suffer(rig: Rig, scene: Scene, fault: Fault) -> Suffered:
    before_s, heard = time.time(), len(rig.answers)
    scene.returns_s.clear()
    rig.pass_time(fault.quiet_s)
    say(f"{fault.kind} {' '.join(fault.targets)} {fault.seconds:g} s".strip())
    try:
        began_s = perform(scene, fault)
        since_s = time.time()
        rig.until(
            lambda: rig.serves() and rig.answers.well_since(since_s),
            "all to be well",
            WHOLE_WITHIN_S,
        )
    except Stuck as stuck:
        raise Stuck(f"after {fault}: {stuck}") from None
    whole_s = time.time()
    say(f"    whole after {whole_s - began_s:.1f} s; {ends(rig.answers[heard:])}")
    return Suffered(fault, before_s, began_s, whole_s, tuple(scene.returns_s))


def settle(rig: Rig) -> None:
    """Wait for the last answers, then end every role as `headrace down` does."""
    rig.offer(0)
    with suppress(Stuck):  # the account reports unanswered queries
        rig.until(lambda: not rig.waiting, "the last answers")
    rig.pass_time(1)
    order = ("ingress", "dispatcher", "control", "cpu", "egress")
    for name in sorted(rig.running, key=lambda role: (order.index(_begin(role)), role)):
        code = rig.stop(name)
        if code != 0:
            raise Stuck(f"{name} was asked to end and exited with {code}")
    rig.pass_time(1)


def _begin(role: str) -> str:
    return role.partition("-")[0]


def left_over(leaders: Sequence[int]) -> list[str]:
    """Return a violation for each process that outlived the role that started it."""
    until_s = time.monotonic() + ENDED_WITHIN_S
    while (found := _of_sessions(set(leaders))) and time.monotonic() < until_s:
        time.sleep(0.1)
    return [f"no process is left: {one.pid} ({one.name()}) is there" for one in found]


def _of_sessions(leaders: set[int]) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and os.getsid(process.pid) in leaders:
                found.append(process)
    return found


# ---------------------------------------------------------------------- the account


def recoveries(suffered: Sequence[Suffered], rig: Rig) -> dict[str, Recovery]:
    """Return recoveries by kind of fault and overall; a query counts for the fault during which
    it was created."""
    ill_s = sorted(a.created_s for a in rig.answers if not in_time(a) and _is_number(rig, a.id))
    times: dict[str, list[tuple[float, float, int]]] = {}
    for one in suffered:
        hurt = [at_s for at_s in ill_s if one.before_s < at_s <= one.whole_s]
        recovered_s = max(map(one.after_s, hurt), default=0.0)
        row = (recovered_s, one.whole_s - one.began_s, len(hurt))
        times.setdefault(one.fault.kind, []).append(row)
    found = {kind: _recovery(times[kind]) for kind in sorted(times)}
    every = [row for rows in times.values() for row in rows]
    return {**found, ALL: _recovery(every)} if every else found


def _recovery(rows: Sequence[tuple[float, float, int]]) -> Recovery:
    recovered, whole, hurt = zip(*rows, strict=True)
    return Recovery(
        faults=len(rows),
        hurt=sum(hurt),
        recovered_p50_s=round(statistics.median(recovered), 3),
        recovered_max_s=round(max(recovered), 3),
        whole_p50_s=round(statistics.median(whole), 3),
        whole_max_s=round(max(whole), 3),
    )


def missed(found: Mapping[str, Recovery], kinds: Mapping[str, Kind]) -> list[str]:
    """Return a sentence for each bound of a kind that its recoveries miss."""
    late = []
    for name, recovery in found.items():
        kind = kinds.get(name)
        if kind is None:
            continue
        if recovery.recovered_p50_s > kind.median_s:
            late.append(f"{name}: recovered after {recovery.recovered_p50_s:g} s in the median; "
                        f"the bound is {kind.median_s:g} s")  # fmt: skip
        if recovery.recovered_max_s > kind.most_s:
            late.append(f"{name}: recovered after {recovery.recovered_max_s:g} s; "
                        f"the bound is {kind.most_s:g} s")  # fmt: skip
    return late


def _is_number(rig: Rig, name: str) -> bool:
    """Return whether a query's payload is a number; garbage and words fail by design."""
    return name in rig.asked and rig.asked[name].payload.isdigit()


def record_of(rig: Rig, scene: Scene, watch: Watch) -> Record:
    """Return the records of a run."""
    return Record(
        asked=rig.asked,
        garbage=scene.garbage,
        answers=rig.answers,
        letters=rig.letters,
        plans=rig.plans,
        followed=rig.reports.epochs,
        results=rig.results,
        readers=rig.reports.slot_readers,
        commits=watch.commits,
        memory=watch.memory,
    )


# ---------------------------------------------------------------------- the command


@contextmanager
def a_rig(
    folder: Path,
    nodes: int = 1,
    slo_s: float = 1.0,
    kinds: Collection[str] = (),
    pipeline: str = SLOTS,
) -> Iterator[tuple[Rig, Scene]]:
    """Yield a pipeline of ``chaos_pipelines`` on its own broker; both end with the block.

    ``kinds`` of faults may need the broker's data on a small disk, or each role on its own host.
    """
    home = folder / "broker"
    with ExitStack() as stack:
        if DISK_FULL in kinds:
            stack.enter_context(small_disk(home))
        count = PROXIED if {HOST, LONG_HOST}.intersection(kinds) else 0
        hosts = [stack.enter_context(closing(Host(number))) for number in range(count)]
        beside = stack.enter_context(ThreadPoolExecutor(1))
        running = local.start(home, nodes=nodes, proxied=PROXIED if nodes == 1 else 0)
        stack.callback(lambda: beside.submit(local.stop, home).result())
        write_profile(folder)
        described = description(pipeline, slo_s)
        rig = Rig(running.bootstrap, folder, described, properties=dict(PROPERTIES))
        stack.callback(rig.close)
        rig.roles |= {name: Role(name, "control") for name in CONTROLS}
        rig.hosts = dict(zip(rig.roles, hosts, strict=False))
        proxies = None
        if running.proxied:
            listeners = running.proxied[: len(rig.roles)]
            proxies = Proxies(tuple(rig.roles), listeners, rig.hosts)
            stack.callback(proxies.close)
            rig.bootstraps |= proxies.bootstraps
        yield rig, Scene(rig, home, beside, proxies)


def measure(
    folder: Path, seed: int, minutes: float, rate: float, *, nodes: int = 1,
    longest_s: float = 10.0, slo_s: float = 1.0, names: Sequence[str] = (), bounded: bool = True,
    pipeline: str = SLOTS,
) -> Account:  # fmt: skip
    """Run and return the account; print progress to standard error.

    ``bounded``: a recovery above its kind's bound is a violation.
    """
    kinds = chosen(nodes, longest_s, names)
    for name, reason in lacking().items():
        say(f"without {name}: {reason}")
    with a_rig(folder, nodes, slo_s, kinds, pipeline) as (rig, scene):
        say(f"up after {rig.up():.1f} s")
        rig.offer(rate)
        rig.pass_time(2)
        with closing(Watch(rig.kafka, rig.name, lambda: rig.pids)) as watch:
            suffered, wrong = run(rig, scene, seed, minutes, kinds)
    wrong += broken(record_of(rig, scene, watch))
    wrong += left_over(rig.leaders)
    found = recoveries(suffered, rig)
    wrong += missed(found, kinds) if bounded else []
    return Account(
        minutes=minutes,
        rate=rate,
        seed=seed,
        nodes=nodes,
        longest_s=longest_s,
        slo_s=slo_s,
        kinds=tuple(names),
        pipeline=pipeline,
        queries=len(rig.asked) + len(scene.garbage),
        outcomes=ends(rig.answers),
        plans=len(rig.plans),
        most_mb={role: round(most / 1e6) for role, most in sorted(watch.memory.items())},
        commits=sum(map(len, watch.commits.values())),
        slots=len(rig.reports.slot_readers),
        recoveries=found,
        broken=wrong,
    )


def say(text: str) -> None:
    """Print progress to standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def report(account: Account) -> str:
    """Return the account as text."""
    heads = ("fault", "times", "hurt", "recovered p50, max", "whole p50, max")
    lines = [
        f"seed {account.seed}, {account.minutes:g} minutes at {account.rate:g} queries/s",
        f"{account.queries} queries: {account.outcomes}; {account.plans} plans",
        "{:<18} {:>5} {:>6} {:>20} {:>16}".format(*heads),
    ]
    for kind, found in account.recoveries.items():
        recovered = f"{found.recovered_p50_s:.2f} s, {found.recovered_max_s:.2f} s"
        whole = f"{found.whole_p50_s:.1f} s, {found.whole_max_s:.1f} s"
        lines.append(f"{kind:<18} {found.faults:>5} {found.hurt:>6} {recovered:>20} {whole:>16}")
    lines.append(
        f"{account.commits} commits of ingress and egress, {account.slots} slots of all epochs; "
        f"the most memory, MB: {', '.join(f'{k} {v}' for k, v in account.most_mb.items())}"
    )
    lines += [f"broken: {what}" for what in account.broken]
    lines.append(f"again: {again(account)}" if account.broken else "every invariant holds")
    return "\n".join(lines)


def again(account: Account) -> str:
    """Return the command that repeats the faults."""
    return (
        f"python -m benchmarks.chaos --minutes {account.minutes:g} --seed {account.seed} "
        f"--rate {account.rate:g} --nodes {account.nodes} --longest {account.longest_s:g} "
        f"--slo {account.slo_s:g}"
        + (f" --kinds '{','.join(account.kinds)}'" if account.kinds else "")
        + ("" if account.pipeline == SLOTS else f" --pipeline {account.pipeline}")
    )


def as_json(account: Account) -> dict[str, Any]:
    """Return the account as JSON values."""
    row = asdict(account)
    return {**row, "ok": not account.broken, "again": again(account), "machine": machine()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and print; return 1 and keep logs and broker data if an invariant is violated."""
    parser = argparse.ArgumentParser(description="Random faults under load, and the account.")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=50.0, help="queries/s")
    parser.add_argument("--nodes", type=int, choices=[1, 3], default=1, help="of the broker")
    parser.add_argument(
        "--longest", type=float, default=90.0, help="leave out kinds that always last longer, s"
    )
    parser.add_argument("--slo", type=float, default=1.0, help="seconds")
    parser.add_argument("--kinds", default="", help="these kinds only, separated by commas")
    parser.add_argument("--pipeline", choices=PIPELINES, default=SLOTS)
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # end the roles, too
    names = tuple(name for name in asked.kinds.split(",") if name)
    folder = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    say(machine_line())
    account = measure(
        folder, asked.seed, asked.minutes, asked.rate, nodes=asked.nodes, longest_s=asked.longest,
        slo_s=asked.slo, names=names, pipeline=asked.pipeline,
    )  # fmt: skip
    print(json.dumps(as_json(account)) if asked.json else report(account))
    if account.broken:
        say(f"logs and the broker's data are in {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())

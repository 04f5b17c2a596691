"""Load three SLO classes at once on emulated devices, below and above the capacity.

    nice -n 5 python -m benchmarks.slo_classes [--policies loki inferline ...] [--seconds 20]
        [--rates 40 400] [--floor 0.95] [--json]
        [--simulated [--seeds 0 1 ...] [--warm-up 6] [--slower 1.03]]

Two emulated devices serve a task with a fast and a slow variant under an SLO of 500 ms, on a local
broker of its own, or with ``--simulated`` in virtual time; with ``--slower`` as well on devices
whose batches take that much longer and are stretched now and then, and with ``--warm-up 0`` from a
cold start, which counts, as in a live run. The classes gold (100 ms, weight 3),
silver (300 ms, 2) and bulk (1 s, 1) have a third of the queries each. For each policy and rate, by
class: queries a second in time, the share in time of the admitted queries, and the admitted share
of all. The exit code is 1 if gold's share in time is below ``LEAST``, or, if a tenth or more was
refused, the admitted shares of gold and bulk are not three to one within ``WITHIN``. With
``--floor`` gold has this floor, and the exit code is 1 if less than it of all its queries are in
time; choose a rate at which the devices could serve gold alone.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.machine_speed import machine, machine_line
from benchmarks.second_day import User
from benchmarks.small_cluster import a_cluster
from headrace.arrivals.arrival_processes import Renewal
from headrace.config.pipeline_file import read_pipeline_file
from headrace.simulation.faults import SLOW, Fault
from headrace.simulation.run_input import Run, devices
from headrace.simulation.simulation_run import simulated

CLASSES: Mapping[str, Mapping[str, object]] = {
    "gold": {"slo": "100ms", "weight": 3},
    "silver": {"slo": "300ms", "weight": 2},
    "bulk": {"slo": "1s", "weight": 1},
}
LEAST, WITHIN, REFUSED = 0.95, 0.15, 0.1
WARM_UP_S = 6.0  # of a simulation
ENDS = ("answered", "late", "dropped", "failed", "lost")  # of what was admitted
WORKLOAD = """
class Blank:
    def queries(self, rng):
        while True:
            yield b"query", None

    def score(self, result, truth):
        return 1, 1

    def task_inputs(self, task, n, rng):
        return [b""] * n, [None] * n

    def task_score(self, task, output, truth):
        return 1.0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The outcomes of a class at one rate of all classes together."""

    policy: str
    rate_qps: float
    slo_class: str
    in_time_qps: float
    kept: float  # of the admitted queries, in time
    admitted: float  # of all


def loaded(user: User, policy: str, rate: float, seconds: float, name: str) -> Part:
    """Load one class with its third of the rate."""
    third = str(rate / len(CLASSES))
    line = ("load", user.file, "--rate", third, "--seconds", str(seconds), "--slo-class", name)
    done = user.types(*line, "--json")
    if not done.stdout:
        raise RuntimeError(done.stderr.decode())
    return counted(policy, rate, seconds, name, json.loads(done.stdout))


def counted(policy: str, rate: float, seconds: float, name: str, counts: Mapping[str, int]) -> Part:
    """Return the part of a class by its outcomes."""
    ended = sum(counts.get(each, 0) for each in ENDS)
    came, answered = ended + counts.get("refused", 0), counts.get("answered", 0)
    return Part(
        policy=policy, rate_qps=rate, slo_class=name, in_time_qps=answered / seconds,
        kept=answered / ended if ended else 0.0, admitted=ended / came if came else 0.0,
    )  # fmt: skip


def a_pipeline(folder: Path, policy: str, floor: float = 0.0) -> Path:
    """Write the pipeline under a policy; ``floor`` is gold's."""
    classes = {name: dict(each) for name, each in CLASSES.items()}
    classes["gold"]["floor"] = floor
    return a_cluster(
        folder, children={"read": ()}, fan_out=0, batch_s=0.02, devices=2, slo="500ms",
        policy=policy, workload="blank:Blank", slo_classes=classes,
    )  # fmt: skip


def stretched(
    workers: Iterable[str], seconds: float, slower: float, seed: int
) -> tuple[Fault, ...]:
    """Return slow devices: batches take ``slower`` times as long, and, where they begin in one of
    the spells of 10 to 60 ms that each device has about once a second, 1.3 to 2 times that."""
    rng, found = np.random.default_rng([seed, 99]), []
    for name in workers:
        found.append(Fault(at_s=0.0, kind=SLOW, device=name, factor=slower))
        at_s = rng.exponential()
        while at_s < seconds:
            for_s, factor = rng.uniform(0.01, 0.06), slower * rng.uniform(1.3, 2.0)
            found.append(Fault(at_s=at_s, kind=SLOW, device=name, for_s=for_s, factor=factor))
            at_s += rng.exponential()
    return tuple(found)


def played(folder: Path, asked: argparse.Namespace) -> Iterator[Part]:
    """Play each policy and rate in virtual time; the counts of all seeds are added."""
    thirds = tuple((name, 1 / len(CLASSES)) for name in CLASSES)
    long_s = asked.warm_up + asked.seconds
    for policy in asked.policies:
        file = read_pipeline_file(a_pipeline(folder, policy, asked.floor))
        for rate in asked.rates:
            found: dict[str, Counter[str]] = {name: Counter() for name in CLASSES}
            for seed in asked.seeds:
                slow = () if asked.slower is None else stretched(
                    devices(file), long_s, asked.slower, seed
                )  # fmt: skip
                run = Run(
                    file=file, policy=policy, seed=seed, warm_up_s=asked.warm_up, classes=thirds,
                    arrivals=Renewal(rate, long_s), faults=slow,
                )  # fmt: skip
                for name, counts in simulated(run, lambda sent: None).metrics.classes.items():
                    found[name].update(counts)
            for name in CLASSES:
                yield counted(policy, rate, asked.seconds * len(asked.seeds), name, found[name])


def measured(folder: Path, asked: argparse.Namespace) -> Iterator[Part]:
    """Bring the pipeline up under each policy and load all classes at once."""
    (folder / "blank.py").write_text(WORKLOAD)
    user = User(folder)
    try:
        for policy in asked.policies:
            a_pipeline(folder, policy, asked.floor)
            try:
                user.up()
                for rate in asked.rates:
                    with ThreadPoolExecutor(len(CLASSES)) as pool:
                        load = partial(loaded, user, policy, rate, asked.seconds)
                        yield from pool.map(load, CLASSES)
            finally:
                user.down()
    finally:
        user.types("broker", "stop")


def wrong(parts: tuple[Part, ...], floor: float) -> list[str]:
    """Return the requirements that the parts of a policy and rate, one of each class, violate."""
    gold, _, bulk = parts
    if floor:
        share, at = gold.kept * gold.admitted, f"{gold.policy} at {gold.rate_qps:g}/s"
        return [f"{at}: of all of gold {share:.1%} in time"] if share < floor else []
    found = []
    if gold.kept < LEAST:
        found.append(f"{gold.policy} at {gold.rate_qps:g}/s: gold keeps {gold.kept:.1%}")
    ratio = gold.admitted / bulk.admitted if bulk.admitted else 0.0
    if bulk.admitted < 1 - REFUSED and gold.admitted < 1 and abs(ratio / 3 - 1) > WITHIN:
        found.append(f"{gold.policy} at {gold.rate_qps:g}/s: gold has {ratio:.2f} times bulk's")
    return found


def main() -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--policies", nargs="+", default=["loki", "inferline", "ramsis"])
    parser.add_argument("--rates", nargs="+", type=float, default=[40.0, 400.0])
    parser.add_argument("--seconds", type=float, default=20.0, help="at each rate")
    parser.add_argument("--floor", type=float, default=0.0, help="of gold")
    parser.add_argument(
        "--simulated", action="store_true", help="in virtual time, without a broker"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="of simulations")
    parser.add_argument(
        "--warm-up", type=float, default=WARM_UP_S, help="seconds of a simulation not counted"
    )
    parser.add_argument("--slower", type=float, help="seconds of simulated batches over profiled")
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    found: list[Part] = []
    with tempfile.TemporaryDirectory(prefix="headrace-classes-") as folder:
        play = played if asked.simulated else measured
        for part in play(Path(folder), asked):
            found.append(part)
            if not asked.json:
                print(
                    f"{part.policy:10} {part.rate_qps:5.0f}/s {part.slo_class:6} in time "
                    f"{part.in_time_qps:6.1f}/s, of the admitted {part.kept:.1%}, "
                    f"admitted {part.admitted:.1%}", flush=True,
                )  # fmt: skip
    broken = [
        each
        for at in range(0, len(found), len(CLASSES))
        for each in wrong(tuple(found[at : at + len(CLASSES)]), asked.floor)
    ]
    if asked.json:
        rows = [asdict(part) for part in found]
        print(json.dumps({"machine": machine(), "parts": rows, "wrong": broken}))
    else:
        print(f"{'; '.join(broken) or 'as it should be'}; {machine_line()}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

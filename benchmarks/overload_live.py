"""Measure, live, what real models that share a machine keep of their goodput beyond its capacity.

    python -m benchmarks.overload_live [--policies fast loki ...] [--loads 1 1.5 3]
                                       [--seconds 20] [--rounds 1] [--json]

The postcode pipeline (SLO 500 ms) runs on two CPU workers without shares: models, broker, roles and
clients compete for the cores, so that the profile promises several times the real capacity. The
roles start anew for each policy. Its capacity is the throughput of a closed loop of 96 clients once
it no longer grows; then come open loads, Poisson, at multiples of it. Goodput is the number of
queries a second that clients receive within the SLO. Exit code 1 if a load reaches less than 0.9 of
its possible goodput: the policy's best goodput, or the offered load if that is less.
"""

import argparse
import asyncio
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.machine_speed import machine
from benchmarks.peers.connections import kafka
from benchmarks.peers.measure import asking
from benchmarks.peers.open_loop import SERVED, OpenLoop, warmed_up
from benchmarks.peers.processes import server
from benchmarks.peers.workloads import POSTCODE, postcode
from benchmarks.rig import ROOT
from headrace.broker.local_broker import borrow
from streams.kafka.admin.topic_admin import readable_partitions
from streams.kafka.kafka_config import KafkaConfig

NAME = "postcode"
CLIENTS, REST_S = 96, 4.0
START_S, LOOK_S = 60.0, 0.5  # of the roles, at most; between two looks
WANTED = 0.9
# Settings of the policies that plan nothing; the others need none.
FIXED: Mapping[str, Mapping[str, Any]] = {
    "fast": {"kind": "static", "replicas": {"locate/components": 1, "read/mlp": 1}},
    "accurate": {
        "kind": "static",
        "replicas": {"locate/deep": 1, "read/committee": 1},
        "batch": {"locate/deep": 4, "read/committee": 2},
    },
}
POLICIES = ("fast", "accurate", "loki", "inferline", "proteus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load. ``ends`` counts its queries by how they ended for the client."""

    policy: str
    round: int
    capacity_qps: float
    load: float  # of the capacity
    offered_qps: float
    goodput_qps: float
    ends: Mapping[str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--policies", nargs="+", default=POLICIES, metavar="NAME")
    parser.add_argument("--loads", type=float, nargs="+", default=(1.0, 1.5, 3.0), metavar="X")
    parser.add_argument("--seconds", type=float, default=20.0, help="per load")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found: list[Load] = []
    for number in range(asked.rounds):
        for policy in asked.policies:
            found += measured(policy, number, asked.loads, asked.seconds)
            if not asked.json:
                print(*map(line, found[-len(asked.loads) :]), sep="\n", flush=True)
    least = kept(found)
    if asked.json:
        loads = [asdict(load) for load in found]
        print(json.dumps({"machine": machine(), "loads": loads, "kept": least}))
    else:
        print(*(f"{name} keeps {share:.2f}" for name, share in least.items()), sep="\n")
    sys.exit(min(least.values()) < WANTED)


def measured(policy: str, number: int, loads: Sequence[float], seconds: float) -> list[Load]:
    """Run the pipeline under a policy and offer each load."""
    with tempfile.TemporaryDirectory() as home, borrow(Path(home)) as broker:
        file = pipeline(Path(home) / NAME, policy)
        command = [sys.executable, "-m", "headrace", "up", str(file)]
        variables = {"HEADRACE_HOME": home, "HEADRACE_BOOTSTRAP": broker.bootstrap}
        variables["PYTHONPATH"] = str(file.parent)
        with server(command, variables, ROOT, Path(home) / "up.log"):
            return asyncio.run(_offered(broker.bootstrap, policy, number, loads, seconds))


def pipeline(folder: Path, policy: str) -> Path:
    """Write the example's pipeline for two workers under ``policy``; return its file."""
    shutil.copytree(POSTCODE, folder, ignore=shutil.ignore_patterns("*.world.json", "__pycache__"))
    path = folder / "pipeline.yaml"
    document = yaml.safe_load(path.read_text())
    document |= {"policy": policy, "policies": dict(FIXED), "cluster": {"devices": {"cpu": 2}}}
    path.write_text(yaml.safe_dump(document))
    return path


async def _offered(
    bootstrap: str, policy: str, number: int, loads: Sequence[float], seconds: float
) -> list[Load]:
    workload, found = postcode(), []
    await _topic(KafkaConfig(bootstrap), f"{NAME}.results")
    async with kafka(bootstrap, NAME) as call:
        ask = asking(call, workload)
        capacity_qps = await warmed_up(ask, CLIENTS)
        if capacity_qps == 0:
            raise TimeoutError(f"no answer under {policy}")
        rng = np.random.default_rng(number)
        for load in loads:
            await asyncio.sleep(REST_S)
            ended = await OpenLoop(ask, workload.slo_s, rng).offer(load * capacity_qps, seconds)
            ends = Counter(each.ending for each in ended)
            found.append(
                Load(
                    policy=policy, round=number, capacity_qps=capacity_qps, load=load,
                    offered_qps=len(ended) / seconds, goodput_qps=ends[SERVED] / seconds,
                    ends=ends,
                )
            )  # fmt: skip
    return found


async def _topic(config: KafkaConfig, name: str) -> None:
    """Wait until the roles have created the topic."""
    async with asyncio.timeout(START_S):
        while not await asyncio.to_thread(readable_partitions, config, name):
            await asyncio.sleep(LOOK_S)


def kept(found: Sequence[Load]) -> dict[str, float]:
    """Return, by policy, the least goodput of a load as a share of the policy's best, or of the
    offered load if that is less."""
    least: dict[str, float] = {}
    for one in found:
        best_qps = max(
            x.goodput_qps for x in found if (x.policy, x.round) == (one.policy, one.round)
        )
        share = one.goodput_qps / max(1e-9, min(best_qps, one.offered_qps))
        least[one.policy] = min(share, least.get(one.policy, 1.0))
    return least


def line(load: Load) -> str:
    """Return a load as a line of a table."""
    ends = ", ".join(f"{count} {end}" for end, count in sorted(load.ends.items()))
    return (
        f"| `{load.policy}` | {load.capacity_qps:.0f}/s | {load.load:g} | {load.offered_qps:.0f}/s "
        f"| {load.goodput_qps:.0f}/s | {ends} |"
    )


if __name__ == "__main__":
    main()

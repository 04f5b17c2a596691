"""The cases of Kairos' comparison: the artifact's sizes and others, a larger SLO, other gaps,
measured repeats, hops between processes, several dispatchers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from control.policies.kairos.device_mixes import Floats
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file

TRACE = "trace"
NORMALS = {"N(256,32)": (256, 32), "N(400,150)": (400, 150)}  # mean, standard deviation of sizes
SLO_FACTORS = {"QoS x1.2": 1.2}
AUTHORS_GAPS = "authors' gaps"
REPEATS = "measured repeats"  # latencies are drawn, in place of their means
HOPS = "hops"  # as on a local broker, in place of none
HOP_S = 1.4e-3  # what plans reckon with for one
SLOWER = 10  # time by ``headrace fidelity --dilate``: a hop takes a tenth of its share of the SLO
SLOW_HOPS = f"hops, time {SLOWER} times slower"
DISPATCHERS = {"1 dispatcher": 1, "2 dispatchers": 2, "4 dispatchers": 4}
MANY_SLOTS = 256  # each of their many devices reads a slot of its own
BUDGETS = {"$ 5 an hour": 5.0, "$ 10 an hour": 10.0}  # in place of 2.5


def case_file(out: Path, model: str, case: str) -> PipelineFile:
    """Return the pipeline file of a case; its sizes file is written into ``out``."""
    file = read_pipeline_file(out / f"{model}.yaml")
    if case in NORMALS:
        name = f"normal-{NORMALS[case][0]}-{NORMALS[case][1]}.sizes.csv"
        (out / name).write_text(normal_sizes(*NORMALS[case]), encoding="utf-8")
        return replace(file, sizes=out / name)
    if case == REPEATS:
        return replace(file, profiles=(out / f"{model}.noisy.profile.json",))
    pipeline = replace(
        file.pipeline,
        slo_s=file.pipeline.slo_s * SLO_FACTORS.get(case, 1.0),
        comm_s=HOP_S / slower(case) if case in (HOPS, SLOW_HOPS) else file.pipeline.comm_s,
        ingress=DISPATCHERS.get(case, 1),
    )
    if case in DISPATCHERS:
        tasks = tuple(replace(each, slots=MANY_SLOTS) for each in pipeline.tasks)
        pipeline = replace(pipeline, tasks=tasks)
    return replace(file, pipeline=pipeline, cluster=replace(file.cluster, ingress=pipeline.ingress))


def slower(case: str) -> float:
    """Return the factor by which time runs slower than the machine's."""
    return SLOWER if case == SLOW_HOPS else 1.0


def normal_sizes(mean: float, deviation: float, most: int = 1000, width: int = 10) -> str:
    """Return a sizes file: the normal distribution within (0, most], in classes of ``width``."""

    def below(size: float) -> float:
        return 0.5 * (1 + math.erf((size - mean) / (deviation * math.sqrt(2))))

    rows = [(upper, below(upper) - below(upper - width)) for upper in range(width, most + 1, width)]
    total = math.fsum(share for _, share in rows)
    lines = [f"{upper},{share / total:.17g}\n" for upper, share in rows]
    return "size,probability\n" + "".join(lines)


def authors_gaps(seed: int, count: int, qps: float) -> Floats:
    """Return gaps as the artifact draws them, in means: whole milliseconds with a Poisson
    distribution, far more regular than the gaps of a Poisson process."""
    gaps_ms: Floats = np.random.default_rng(seed).poisson(1e3 / qps, size=count).astype(float)
    return gaps_ms * qps / 1e3

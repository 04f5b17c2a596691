"""Write Compass' modelled benchmark in Headrace's formats.

    python -m benchmarks.papers.compass DATA_DIR OUT_DIR [--compare [PAGE]]

Writes, for each of the applications SR, VT, LVC, DVC and ACG, a pipeline file with its knobs and
the tiers edge, near and cloud, and the recording of one drawn query over all configurations, which
``headrace search APP.yaml --recorded APP.truth.json`` searches; scheduling instances of drawn
sessions on the papers' clusters (medium, large, one-tier, four-tier, small-v1, large-v1).
All figures are modelled by ``benchmark_model.json``, none measured. ``--compare`` runs the searches
against the papers' baselines and writes docs/results/compass.md; ``--again`` writes the page from
the last results in OUT_DIR.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.compass_model import (
    CLOUD,
    CPU_ON_EDGE,
    EDGE,
    NEAR,
    Application,
    DrawnQuery,
    applications,
    draw,
)
from benchmarks.papers.sources import DataError
from control.policies.compass.search.pricing import priced

PAGE = Path("docs/results/compass.md")
OPERATOR = "operators.models.python:Python"
ARGUMENTS = '{function: "builtins:bytes"}'
NEAR_EDGE = "near_edge"
SESSIONS = 400  # per instance

# GPUs of each tier: the papers' clusters (Compass, Section 6.1; Circinus, Section 6.1).
CLUSTERS: Mapping[str, Mapping[str, int]] = {
    "medium": {CLOUD: 16, NEAR: 16},
    "large": {CLOUD: 128, NEAR: 128},
    "one-tier": {CLOUD: 16},
    "four-tier": {CLOUD: 16, NEAR: 16, NEAR_EDGE: 16},
    "small-v1": {CLOUD: 4, NEAR: 4},
    "large-v1": {CLOUD: 64, NEAR: 64},
}


def write(data: Path, out: Path) -> list[Path]:
    """Write all files; return their paths. Raises ``DataError`` if the data is missing."""
    apps = applications(data)
    out.mkdir(parents=True, exist_ok=True)
    written = [path for app in apps.values() for path in _application(app, out)]
    return [*written, *_instances(apps, out)]


def _application(app: Application, out: Path) -> Iterator[Path]:
    query = draw(app, 1, 0)[0]
    pipeline = out / f"{app.name.lower()}.yaml"
    pipeline.write_text(_yaml(app, query), encoding="utf-8")
    yield pipeline
    truth = out / f"{app.name.lower()}.truth.json"
    truth.write_text(json.dumps(_truth(app, query)), encoding="utf-8")
    yield truth


def _yaml(app: Application, query: DrawnQuery) -> str:
    """Return the pipeline file, with the tiers and links of the drawn query."""
    deployment, space = query.deployment, app.space
    edge = int(np.flatnonzero((space.placements == 0).all(axis=1))[0])
    gpu = next(i for i, stage in enumerate(space.stages) if not stage.cpu)
    cloud = int(np.flatnonzero((space.placements == 2).all(axis=1))[0])
    upload = 8 / float(deployment.per_byte[0, cloud])
    tiers, network = app.model["tiers"], app.model["network"]
    room = float(deployment.capacity[gpu, edge])
    most = app.most_samples
    lines = [
        f"# {app.name} of Compass' evaluation, as modelled by benchmark_model.json.",
        f"name: compass-{app.name.lower()}",
        f"slo: {{latency: {query.slo.latency_s * 1e3:.3f}ms, accuracy: {query.slo.accuracy:.6f}}}",
        "comm: 0ms  # the model has no hops between processes",
        "policy: compass",
        "policies:",
        f"  compass: {{kind: compass, spend: 0.0, deadline: {_deadline(app)}, "
        f"samples: {{least: 50, most: {most}}}}}",
        "tasks:",
        *_tasks(app),
        "cluster:",
        "  tiers:",
        f"    edge: {{speed: {1 / deployment.slowdown[gpu, edge]:.9f}, "
        f"cpu_speed: {1 / CPU_ON_EDGE:.9f}, memory: {room:g}GB, per: session}}",
        *(
            f"    {tier}: {{speed: {tiers[tier]['speed']:.9f}, count: 16, "
            f"price: {tiers[tier]['usd_per_gpu_h']}, memory: {tiers[tier]['mem_gb']}GB}}"
            for tier in (NEAR, CLOUD)
        ),
        "  links:",
        *(
            f"    edge>{tier}: {{rate: {upload / 1e6:.9f}Mbps, delay: 10ms}}"
            for tier in (NEAR, CLOUD)
        ),
        *(
            f"    {one}>{other}: {{rate: {network['other_mbps']}Mbps, delay: 10ms}}"
            for one, other in ((NEAR, EDGE), (CLOUD, EDGE), (NEAR, CLOUD))
        ),
    ]
    return "\n".join(lines) + "\n"


def _deadline(app: Application) -> str:
    """Return the search deadline: 5 s for interactive searches, else ten A100-hours."""
    return "5s" if app.parallelism > 1 else "36000s"


def _tasks(app: Application) -> Iterator[str]:
    stages = app.space.stages
    for stage, child in zip(stages, [*stages[1:], None], strict=True):
        yield f"  {stage.name}:"
        if child is not None:
            yield f"    children: [{child.name}]"
        knobs = {k.name: list(k.options) for k in app.space.knobs if k.stage == stage.name}
        if knobs:
            yield f"    knobs: {json.dumps(knobs)}"
        if stage.batched:
            yield "    batched: true"
        if stage.cpu:
            yield "    cpu: true"
        yield f"    variants: {{{stage.name}: {{operator: {OPERATOR}, arguments: {ARGUMENTS}}}}}"


def _truth(app: Application, query: DrawnQuery) -> dict[str, Any]:
    names = [stage.name for stage in app.space.stages]
    return {
        "pipeline": f"compass-{app.name.lower()}",
        "input_bytes": float(app.sent[0, 0]),
        "result_bytes": float(app.sent[0, -1]),
        "parallelism": app.parallelism,
        "provenance": {"modelled": "benchmark_model.json", "query": query.number},
        "configurations": [
            {
                "options": app.space.named(c),
                "scores": query.scores(c, app.most_samples).round(4).tolist(),
                "seconds": dict(zip(names, query.seconds[c].tolist(), strict=True)),
                "bytes": dict(zip(names, app.sent[c, 1:].tolist(), strict=True)),
                "memory_bytes": dict(zip(names, (app.memory[c] * 1e9).tolist(), strict=True)),
            }
            for c in range(app.space.configuration_count)
        ],
    }


def _instances(apps: Mapping[str, Application], out: Path) -> Iterator[Path]:
    """Write the same sessions of all applications, with their cheapest plans, per cluster."""
    sessions = list(_sessions(apps))
    prices = next(iter(apps.values())).model["tiers"]
    for name, gpus in CLUSTERS.items():
        tiers = {t: {"gpus": n, "price": prices[t]["usd_per_gpu_h"]} for t, n in gpus.items()}
        queries = [
            {**s, "plans": [p for p in s["plans"] if all(i[0] in gpus for i in p["items"])]}
            for s in sessions
        ]
        path = out / f"{name}.sessions.json"
        path.write_text(json.dumps({"tiers": tiers, "queries": queries}), encoding="utf-8")
        yield path


def _sessions(apps: Mapping[str, Application]) -> Iterator[dict[str, Any]]:
    each = SESSIONS // len(apps)
    for app in apps.values():
        for query in draw(app, each, 1):
            yield {
                "id": f"{app.name.lower()}-{query.number}",
                "weight": 1,
                "plans": _plans(app, query),
            }


def _plans(app: Application, query: DrawnQuery, most: int = 6) -> list[dict[str, Any]]:
    """Return the cheapest trimmed plans of the three fastest compliant configurations."""
    good = [c for c in range(app.space.configuration_count) if query.compliant(c)]
    good.sort(key=lambda c: (float(query.seconds[c].sum()), c))
    found = [
        plan
        for c in good[:3]
        for plan in priced(query.deployment, c, query.seconds[c], app.sent[c], query.slo.latency_s)
    ]
    found.sort(key=lambda plan: (plan.usd_per_h, plan.latency_s))
    space = app.space
    return [
        {
            "cost": plan.usd_per_h,
            "items": [
                [space.tiers[int(space.placements[plan.placement, stage])], quarters,
                 *pool_of(app, plan.configuration, stage)]
                for stage, quarters in enumerate(plan.occupied)
                if quarters
            ],
        }
        for plan in found[:most]
    ]  # fmt: skip


def pool_of(app: Application, configuration: int, stage: int) -> tuple[str, ...]:
    """Return the pool of a batched stage, which is its model; () for another stage."""
    if not app.space.stages[stage].batched:
        return ()
    named = app.space.named(configuration)
    own = [named[f"{k.stage}.{k.name}"] for k in app.space.knobs
           if k.stage == app.space.stages[stage].name]  # fmt: skip
    return (f"{app.name.lower()}/{app.space.stages[stage].name}/{'-'.join(own)}",)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the files; compare if asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA_DIR")
    parser.add_argument("out", type=Path, metavar="OUT_DIR")
    parser.add_argument("--compare", nargs="?", type=Path, const=PAGE, metavar="PAGE")
    parser.add_argument("--again", action="store_true", help="only write the page again")
    parser.add_argument("--queries", type=int, default=40, help="per application (40)")
    options = parser.parse_args(arguments)
    try:
        for path in write(options.data, options.out):
            print(path)
        if options.compare is not None:
            from benchmarks.papers.compass_compare import compare

            told = compare(options.data, options.out, options.queries, options.again)
            options.compare.write_text(told, encoding="utf-8")
            print(options.compare)
    except DataError as error:
        sys.exit(f"benchmarks.papers.compass: {error}")


if __name__ == "__main__":
    main()

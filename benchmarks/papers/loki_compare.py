"""Play Loki's comparison on the stand-in traces: policies, baselines with loki's rules, ablations.

    python -m benchmarks.papers.loki DATA_DIR OUT_DIR --compare [--scene NAME ...] [--seeds 3]

A scene is a pipeline with a trace and the policies compared on it. Each run is a row of
OUT_DIR/rows.jsonl, written when the run has ended; runs that are recorded are not played again. All
runs are simulated, one after the other: seed by seed, the policies of ``FIRST`` in the scenes of
``MAIN`` before the other policies and scenes. A trace of five minutes takes 10 to 30 s of CPU with
compiled nodes.

A seed draws Poisson arrivals at the trace's rates, scaled to its number of queries, service times,
fan-out and hops. A pipeline whose plans take hops to be instant (``comm: 0ms``, as the authors'
code) has none: budgets of microseconds would otherwise be over before an item arrives. The scenes
``*-recorded`` have the arrivals and constant service times that the authors' code was measured
with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.commit import commit
from benchmarks.row_file import RowFile
from control.policies import POLICIES
from headrace.arrivals.arrival_processes import Arrivals, Rates, Recorded
from headrace.arrivals.arrivals_file import read_workload
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.roles.heap import collect_seldom
from headrace.simulation.batch_runs import Row as Figures
from headrace.simulation.run_input import Run
from headrace.simulation.simulation_run import simulated
from headrace.simulation.static_best import NAME as STATIC_BEST
from headrace.simulation.static_best import search
from schemas.pipeline import Policy

# The rules of loki besides planning, for the baselines. Their routing is their own: with that of
# loki the controller would keep plans by what they serve end to end, which `proteus` plans without.
RULES = "estimator=trend:dropping=reroute:paced=true:latency=p95:rate=mean"
WITH_RULES = {f"{name} + rules": f"{name}:{RULES}" for name in ("inferline", "proteus")}
PAPER = "loki-paper:dropping=per-task"
FIRST = ("loki", "inferline", "proteus", "proteus + rules")
THEN = ("inferline + rules", STATIC_BEST, PAPER)
MAIN_POLICIES = (*FIRST, *THEN)
# Rules of loki, each replaced by the one that the paper's evaluation has.
SINGLE = (
    "estimator=ewma", "dropping=per-task", "routing=most-accurate-first", "utilisation=1",
    "latency=p50:rate=p50", "paced=false", "quick=false",
)  # fmt: skip
OTHER = ("dropping=deadline", "headroom=0.85", "headroom=1.05", "interval=1s")
STEPS = ("none", "last-task", "reroute-paper", "reroute")  # of dropping, beside per-task
THINNED = 3  # the search for the fixed choice plays every third second


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A pipeline, a trace and policies. Every ``every``-th arrival is played; ``admission`` is the
    pipeline file's setting (False: as the authors' code, which refuses no query)."""

    pipeline: str
    trace: str
    policies: tuple[str, ...]
    every: int = 1
    admission: bool = True
    recorded: bool = False


TRAFFIC, SOCIAL = "traffic-288s", "social-291s"
MAIN: Mapping[str, Scene] = {
    "traffic": Scene(pipeline="traffic", trace=TRAFFIC, policies=MAIN_POLICIES),
    "traffic-open": Scene(
        pipeline="traffic", trace=TRAFFIC, policies=MAIN_POLICIES, admission=False
    ),
    "social": Scene(pipeline="social-as-coded", trace=SOCIAL, policies=MAIN_POLICIES),
    "social-open": Scene(
        pipeline="social-as-coded", trace=SOCIAL, policies=MAIN_POLICIES, admission=False
    ),
}  # fmt: skip
REST: Mapping[str, Scene] = {
    "traffic-recorded": Scene(
        pipeline="traffic", trace=TRAFFIC, admission=False, recorded=True,
        policies=("loki", PAPER, "inferline", "proteus"),
    ),
    "social-recorded": Scene(
        pipeline="social-as-coded", trace=SOCIAL, admission=False, recorded=True,
        policies=("loki", PAPER, "inferline", "proteus"),
    ),
    "traffic-rules": Scene(
        pipeline="traffic", trace=TRAFFIC, policies=tuple(f"loki:{rule}" for rule in SINGLE)
    ),
    "social-third": Scene(pipeline="social", trace=SOCIAL, every=3, policies=MAIN_POLICIES),
    "social-third-open": Scene(
        pipeline="social", trace=SOCIAL, every=3, policies=MAIN_POLICIES, admission=False
    ),
    "traffic-dropping": Scene(
        pipeline="traffic", trace=TRAFFIC, policies=tuple(f"loki-paper:dropping={s}" for s in STEPS)
    ),
    "traffic-other": Scene(
        pipeline="traffic", trace=TRAFFIC, policies=tuple(f"loki:{rule}" for rule in OTHER)
    ),
}  # fmt: skip
SCENES: Mapping[str, Scene] = {**MAIN, **REST}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The figures of one run; shares are fractions of the queries, or of their branches."""

    scene: str
    policy: str
    seed: int
    commit: str
    queries: int
    violation: float
    branch_violation: float
    accuracy: float
    devices: float
    refused: float
    dropped: float
    late: float
    cpu_s: float

    @property
    def yielded(self) -> float:
        """The accuracy over all queries, those that were not complete and in time counting 0."""
        return (1 - self.violation) * self.accuracy


def compare(out: Path, names: Sequence[str], seeds: int) -> Iterator[Row]:
    """Play the runs that are not recorded yet; record and yield their rows."""
    collect_seldom()
    record = recorded(out)
    known = {(row.scene, row.policy, row.seed) for row in record.read()}
    for key in runs_in_order(names, seeds):
        if key not in known:
            row = played(out, *key)
            record.append(row)
            yield row


def runs_in_order(names: Sequence[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Yield scene, policy and seed of every run, what matters most first."""
    for scenes, policies in ((MAIN, FIRST), (MAIN, THEN), (REST, None)):
        for seed in range(1, seeds + 1):
            for name in (name for name in names if name in scenes):
                for policy in scenes[name].policies:
                    if policies is None or policy in policies:
                        yield name, policy, seed


def recorded(out: Path) -> RowFile[Row]:
    """Return the file with the rows of all runs so far."""
    return RowFile(out / "rows.jsonl", Row)


def played(out: Path, name: str, policy: str, seed: int) -> Row:
    """Play one policy with one seed in a scene."""
    scene = SCENES[name]
    text = WITH_RULES.get(policy, policy)
    file = _file(out, scene, text)
    run = Run(
        file=file,
        policy=text,
        seed=seed,
        arrivals=arrivals(out, scene.trace, scene.every, drawn=not scene.recorded),
        hops=file.pipeline.comm_s > 0,
    )
    return _row(name, policy, figures(run))


def figures(run: Run) -> Figures:
    """Play a run; return its figures."""
    return simulated(run, lambda sent: None).as_json(run)


def arrivals(out: Path, trace: str, every: int, *, drawn: bool) -> Arrivals:
    """Return a trace's recorded arrivals, or Poisson ones of as many queries on average."""
    found = read_workload(out / f"{trace}-arrivals.txt.gz")
    rates = read_workload(out / f"{trace}.csv")
    assert isinstance(found, Recorded)
    assert isinstance(rates, Rates)
    if not drawn:
        return Recorded(found.times_s[::every])
    scale = len(found.times_s) / sum(rates.rates_qps) / every
    return Rates(tuple(rate * scale for rate in rates.rates_qps))


def _row(name: str, policy: str, found: Figures) -> Row:
    queries = found["queries"]
    return Row(
        scene=name, policy=policy, seed=found["seed"], commit=commit(), queries=queries,
        violation=found["violation"], branch_violation=found["branch_violation"],
        accuracy=found["accuracy"] or 0.0, devices=found["devices_mean"],
        refused=found["refused"] / queries, dropped=found["dropped"] / queries,
        late=found["late"] / queries, cpu_s=found["cpu_seconds"] + found["solve_cpu_seconds"],
    )  # fmt: skip


def _file(out: Path, scene: Scene, policy: str) -> PipelineFile:
    varying = "" if scene.recorded else "-varying"
    file = read_pipeline_file(out / f"{scene.pipeline}{varying}.yaml")
    file = replace(file, pipeline=replace(file.pipeline, admission=scene.admission))
    if policy != STATIC_BEST:
        return with_policies(file, [policy])
    best = fixed_choice(out, scene, file)
    return replace(file, pipeline=replace(file.pipeline, policies=(best,)))


# ---------------------------------------------------------------------- the fixed choice


def fixed_choice(out: Path, scene: Scene, file: PipelineFile) -> Policy:
    """Return ``static-best`` for a scene's pipeline and trace, searched for once.

    The search plays every third second of the trace: the same loads in a third of the time.
    """
    path = out / f"{scene.pipeline}-every-{scene.every}.static-best.json"
    if not path.is_file():
        whole = arrivals(out, scene.trace, scene.every, drawn=True)
        assert isinstance(whole, Rates)
        run = Run(
            file=file,
            policy="loki",
            seed=0,
            arrivals=Rates(whole.rates_qps[::THINNED]),
            hops=file.pipeline.comm_s > 0,
        )
        found = search(run, lambda runs: [figures(each) for each in runs])
        best = {"replicas": dict(found.best.replicas), "batch": dict(found.best.batch)}
        path.write_text(json.dumps(best | {"tried": len(found.tried)}) + "\n", encoding="utf-8")
    best = json.loads(path.read_text(encoding="utf-8"))
    return replace(
        POLICIES["loki"].usual,
        name=STATIC_BEST, kind="static", replicas=best["replicas"], batch=best["batch"],
    )  # fmt: skip

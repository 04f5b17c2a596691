"""Run Loki's comparison on the stand-in traces: policies, ablations, headroom, single rules.

    python -m benchmarks.papers.loki DATA_DIR OUT_DIR --compare [--scene NAME ...] [--seeds 1 2]

A scene is a pipeline with a trace and the policies compared on it. For each scene, OUT_DIR gets
``SCENE.json`` and ``SCENE.html``, and stdout a table; if the authors' code was measured on the same
arrivals, its figures follow ours (specs/loki.md, section 4). All runs are simulated; ``--from``,
``--seconds`` and ``--warm-up`` select a part of each trace for a shorter run: a trace of five
minutes takes about 40 s of CPU per policy and seed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.arrivals.arrival_processes import Recorded, Times, read_workload
from headrace.atomic_file import write_page
from headrace.config.pipeline_file import PipelineFile, read_pipeline_file
from headrace.config.policy_options import with_policies
from headrace.html.comparison_page import comparison_page
from headrace.simulation.comparison import Comparison, as_json, compared
from headrace.simulation.comparison_text import comparison_text
from headrace.simulation.run_input import Run
from headrace.simulation.static_best import NAME as STATIC_BEST

ABLATION = (
    "loki-paper",
    "loki-paper:dropping=per-task",
    "loki-paper:dropping=last-task",
    "loki-paper:dropping=none",
    "loki-paper:dropping=reroute",
)
BASELINES = ("inferline", "proteus", STATIC_BEST)
HEADROOMS = (0.7, 0.85, 0.95, 1.05, 1.2)
# Single rules of loki replaced by the paper's or by another alternative.
RULES = (
    "estimator=ewma", "routing=most-accurate-first", "utilisation=1", "dropping=per-task",
    "dropping=reroute-paper", "budget=bare", "batching=patient", "interval=1s",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A pipeline, a trace and policies. Every ``every``-th arrival is played; ``admission`` is the
    pipeline file's setting (False: as the authors' code, which refuses no query)."""

    pipeline: str
    trace: str
    policies: tuple[str, ...]
    every: int = 1
    admission: bool = True


SCENES: Mapping[str, Scene] = {
    "traffic": Scene(
        pipeline="traffic", trace="traffic-288s", policies=("loki", *ABLATION, *BASELINES)
    ),
    "traffic-open": Scene(
        pipeline="traffic", trace="traffic-288s", admission=False,
        policies=("loki", *ABLATION, "inferline", "proteus"),
    ),
    "traffic-headroom": Scene(
        pipeline="traffic", trace="traffic-288s",
        policies=("loki", *(f"loki:headroom={h:g}" for h in HEADROOMS), STATIC_BEST),
    ),
    "traffic-rules": Scene(
        pipeline="traffic", trace="traffic-288s",
        policies=("loki", *(f"loki:{rule}" for rule in RULES)),
    ),
    "social-as-coded": Scene(
        pipeline="social-as-coded", trace="social-291s",
        policies=("loki", "loki-paper", *BASELINES),
    ),
    "social-as-coded-open": Scene(
        pipeline="social-as-coded", trace="social-291s", admission=False,
        policies=("loki", "loki-paper", "inferline", "proteus"),
    ),
    "social-third": Scene(
        pipeline="social", trace="social-291s", every=3,
        policies=("loki", "loki-paper", *BASELINES),
    ),
    "social-third-open": Scene(
        pipeline="social", trace="social-291s", every=3, admission=False,
        policies=("loki", "loki-paper", "inferline", "proteus"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of the authors' code on the same arrivals, in percent."""

    branches: float
    queries: float
    accuracy: float
    devices: float


# specs/loki.md, section 4: "sub", "root", accuracy, mean of workers, sink included.
AUTHORS: Mapping[str, Mapping[str, Measured]] = {
    "traffic-288s": {
        "Loki, per-task dropping": Measured(15.1, 80.4, 96.22, 18.6),
        "Loki, rerouting, beta 1.05": Measured(13.3, 78.8, 96.02, 18.7),
        "Loki, last-task dropping": Measured(62.7, 94.0, 96.19, 18.6),
        "Loki, no dropping": Measured(88.9, 100.0, 96.22, 13.1),
        "InferLine": Measured(50.5, 96.1, 99.67, 18.6),
        "Proteus": Measured(60.3, 81.8, 90.87, 19.9),
    },
    "social-291s": {
        "Loki, per-task dropping": Measured(6.8, 39.1, 95.72, 14.7),
        "Loki, rerouting": Measured(7.0, 39.1, 95.72, 14.7),
        "InferLine": Measured(35.5, 53.4, 99.55, 14.1),
        "Proteus": Measured(29.8, 29.8, 82.22, 19.7),
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Part of a trace, in seconds; None: to its end. The first ``warm_up_s`` are not counted."""

    since_s: float = 0.0
    seconds: float | None = None
    warm_up_s: float = 0.0

    def of(self, times: Times, every: int) -> Times:
        """Return every ``every``-th arrival of the stretch, shifted to start at 0."""
        last = self.since_s + self.seconds if self.seconds is not None else float("inf")
        inside: Times = times[(times >= self.since_s) & (times < last)] - self.since_s
        return inside[::every]


def compare(out: Path, names: Sequence[str], seeds: Sequence[int], stretch: Stretch) -> None:
    """Play scenes with the files of ``benchmarks.papers.loki``; write and print the results."""
    for name in names:
        scene = SCENES[name]
        made = played(out, scene, seeds, stretch)
        (out / f"{name}.json").write_text(json.dumps(as_json(made), indent=1) + "\n")
        write_page(out / f"{name}.html", comparison_page(made, f"{scene.trace}-arrivals.txt.gz"))
        print(f"\n{name}\n\n{comparison_text(made)}")
        if scene.every == 1:
            print(authors_text(scene.trace))


def played(out: Path, scene: Scene, seeds: Sequence[int], stretch: Stretch) -> Comparison:
    """Play a scene; return the comparison."""
    file = _file(out, scene)
    workload = read_workload(out / f"{scene.trace}-arrivals.txt.gz")
    assert isinstance(workload, Recorded)
    arrivals = Recorded(stretch.of(workload.times_s, scene.every))
    wanted = [
        Run(file=file, policy=policy, seed=seed, arrivals=arrivals, warm_up_s=stretch.warm_up_s)
        for policy in scene.policies
        if policy != STATIC_BEST
        for seed in seeds
    ]
    return compared(wanted, scene.policies)


def _file(out: Path, scene: Scene) -> PipelineFile:
    file = read_pipeline_file(out / f"{scene.pipeline}.yaml")
    file = replace(file, pipeline=replace(file.pipeline, admission=scene.admission))
    return with_policies(file, [name for name in scene.policies if name != STATIC_BEST])


def authors_text(trace: str) -> str:
    """Return the figures of the authors' code on a whole trace, as text."""
    lines = [f"\nthe authors' code on the whole of {trace} (docs/results/loki.md: what differs)"]
    lines += [
        f"  {name:28} violation {each.queries:5.1f}%  of branches {each.branches:5.1f}%  "
        f"accuracy {each.accuracy:5.2f}%  devices {each.devices:4.1f}"
        for name, each in AUTHORS[trace].items()
    ]
    return "\n".join(lines)

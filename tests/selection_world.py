"""Small settings of model selection for tests."""

from pathlib import Path

from control.policies.ramsis.arrival_counts import ArrivalCounts
from control.policies.ramsis.mdp import Setting, fixed_levels
from control.policies.ramsis.pareto_models import CandidateModel
from profiles.measurements import EMULATED, Entry, Latency
from profiles.profile_json import profile_text
from profiles.profile_table import ProfileTable

FAST = CandidateModel("fast", 0.60, (0.020, 0.030, 0.040))
GOOD = CandidateModel("good", 0.75, (0.045, 0.080, 0.110))
BEST = CandidateModel("best", 0.90, (0.090, 0.170, 0.250))
# Most batches end long before the quantile by which they count as late.
USUALLY_QUICK = CandidateModel("quick", 0.80, (0.045, 0.080, 0.090), (0.012, 0.018, 0.024))
SLO_S = 0.1


def a_setting(
    qps: float = 30.0,
    workers: int = 2,
    models: tuple[CandidateModel, ...] = (FAST, GOOD, BEST),
    levels: tuple[float, ...] | None = None,
    dispersion: float = 1.0,
    slo_s: float = SLO_S,
) -> Setting:
    return Setting(
        models=models,
        slo_s=slo_s,
        workers=workers,
        arrivals=ArrivalCounts(qps, dispersion),
        levels_s=levels or fixed_levels(slo_s, 5),
    )


TWO_MODELS = (
    CandidateModel("quick", 0.6, (0.01003, 0.01511, 0.02017, 0.02519)),
    CandidateModel("right", 0.8, (0.03007, 0.05013, 0.07019, 0.09023)),
)
TWO_MODEL_FILE = """\
name: small
slo: 100ms
comm: 0ms
tasks:
  classify:
    slots: 4
    variants:
      quick: {operator: "operators.models.python:Python", arguments: {function: "builtins:bytes"}, batch: 4}
      right: {operator: "operators.models.python:Python", arguments: {function: "builtins:bytes"}, batch: 4}
cluster: {devices: {emulated: 3}}
profiles: [small.json]
"""  # noqa: E501


def a_two_model_file(folder: Path, text: str = TWO_MODEL_FILE) -> Path:
    """Write a pipeline of one task with both models on three emulated devices; return its path."""
    entries = tuple(
        Entry(
            task="classify", variant=model.name, device=EMULATED,
            operator="operators.models.python:Python", weights_sha256="", load_s=0.0,
            memory_bytes=0, accuracy=model.accuracy, children={},
            latency=tuple(
                Latency(batch=b, repeats=9, mean_s=s, p50_s=s, p90_s=s, p95_s=s, p99_s=s)
                for b, s in enumerate(model.latency_s, start=1)
            ),
        )
        for model in TWO_MODELS
    )  # fmt: skip
    (folder / "small.json").write_text(profile_text(ProfileTable("small", entries, {})))
    path = folder / "small.yaml"
    path.write_text(text)
    return path

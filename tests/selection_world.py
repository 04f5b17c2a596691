"""Small settings of model selection for tests."""

from control.policies.ramsis.arrival_counts import ArrivalCounts
from control.policies.ramsis.mdp import Setting, fixed_levels
from control.policies.ramsis.pareto_models import CandidateModel

FAST = CandidateModel("fast", 0.60, (0.020, 0.030, 0.040))
GOOD = CandidateModel("good", 0.75, (0.045, 0.080, 0.110))
BEST = CandidateModel("best", 0.90, (0.090, 0.170, 0.250))
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

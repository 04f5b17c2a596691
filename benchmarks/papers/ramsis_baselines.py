"""Which one model does for a load, and in which batches? Baselines that look at the load alone.

    jellyfish(models, slo_s=0.15, share_qps=2000 / 60)
    held(chosen, models, slo_s=0.15, qps=2000)      # as a table that workers follow

What they choose is a model for all queries and the most that run together. Jellyfish+ and
ModelSwitching are the two that the RAMSIS paper compares itself with (section 7, and what its
artifact does beyond that). The tuned static choice is the fair one: any model, any batch, and the
most accurate pair that a trial finds good.

With l(m, b) the planning latency and q the load of one worker, in queries/s, the batches of a
model that carry the load and leave half of the SLO for waiting are

    B(m) = {b : b / l(m, b) >= margin q,  l(m, b) <= SLO / 2}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from control.policies.ramsis.pareto_models import CandidateModel, SelectionError
from control.policies.ramsis.tables import Table

MARGIN = 1.05  # of throughput over load that Jellyfish+ keeps
TOLERATED = 0.01  # violation of a choice that ModelSwitching and the tuned static one take


@dataclass(frozen=True, slots=True)
class Fixed:
    """``model`` for every query, at most ``most`` of them together."""

    model: str
    most: int


# The violation, 0..1, that a choice was seen to have in a trial at the load in question.
Trial = Callable[[Fixed], float]


def jellyfish(
    models: Sequence[CandidateModel], slo_s: float, share_qps: float, margin: float = MARGIN
) -> Fixed:
    """Jellyfish+: the most accurate model that has a batch in B, with the largest of them.

    Where no model has one, the fastest in batches as large as were profiled: what the authors'
    code does.
    """
    for model in most_accurate_first(models):
        batches = [
            b
            for b, seconds in enumerate(model.latency_s, start=1)
            if b / seconds >= margin * share_qps and seconds <= slo_s / 2
        ]
        if batches:
            return Fixed(model.name, batches[-1])
    last = fastest(models)
    return Fixed(last.name, len(last.latency_s))


def model_switching(
    models: Sequence[CandidateModel], slo_s: float, share_qps: float, trial: Trial
) -> Fixed:
    """ModelSwitching: the most accurate model whose violation in a trial is below 1 %.

    As in the authors' code the batch is the one that Jellyfish+ without a margin would choose, for
    its model, whichever model runs. Where every trial fails: the fastest.
    """
    most = jellyfish(models, slo_s, share_qps, margin=1.0).most
    tried = (
        Fixed(model.name, most)
        for model in most_accurate_first(models)
        if most <= len(model.latency_s)
    )
    found = next((choice for choice in tried if trial(choice) < TOLERATED), None)
    return found or Fixed(fastest(models).name, most)


def tuned_static(models: Sequence[CandidateModel], slo_s: float, trial: Trial) -> Fixed | None:
    """The most accurate model that keeps violations below 1 % in some batch, in the best of them.

    The best is the one of least violation, of equals the smallest. None where there is none.
    """
    for model in most_accurate_first(models):
        choices = [
            Fixed(model.name, b)
            for b, seconds in enumerate(model.latency_s, start=1)
            if seconds <= slo_s
        ]
        seen = [(trial(choice), choice.most, choice) for choice in choices]
        kept = [each for each in seen if each[0] < TOLERATED]
        if kept:
            return min(kept, key=lambda each: each[:2])[2]
    return None


def held(choice: Fixed, models: Sequence[CandidateModel], slo_s: float, qps: float) -> Table:
    """The table of a choice: the same in every state, so a worker follows it like any other.

    Raises ``SelectionError`` for a model that there is none of, or a batch it was not profiled at.
    """
    known = {model.name: len(model.latency_s) for model in models}
    if not 1 <= choice.most <= known.get(choice.model, 0):
        raise SelectionError(
            f"batches of {choice.most} of {choice.model} are not profiled; known are "
            f"{', '.join(f'{name} up to {most}' for name, most in known.items())}"
        )
    rows = range(1, choice.most + 2)
    return Table(
        qps=qps,
        models=(choice.model,),
        levels_s=(0.0, slo_s),
        model=tuple((0, 0) for _ in rows),
        batch=tuple((min(n, choice.most),) * 2 for n in rows),
    )


def most_accurate_first(models: Sequence[CandidateModel]) -> list[CandidateModel]:
    """By falling accuracy, the faster first in a tie."""
    return sorted(models, key=lambda model: (-model.accuracy, model.latency_s[0]))


def fastest(models: Sequence[CandidateModel]) -> CandidateModel:
    """The model that serves one query soonest."""
    return min(models, key=lambda model: (model.latency_s[0], -model.accuracy))

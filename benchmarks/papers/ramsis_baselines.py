"""Baselines that choose one model and its largest batch by the load alone.

    jellyfish(models, slo_s=0.15, share_qps=2000 / 60)
    held(chosen, models, slo_s=0.15, qps=2000)      # as a table that workers follow

A choice is a model for all queries and the largest batch. Jellyfish+ and ModelSwitching are the
baselines of the RAMSIS paper (section 7, with the details of its artifact). The tuned static choice
is the fair baseline: the most accurate pair of model and batch that passes a trial.

With l(m, b) the planning latency and q the load of one worker, in queries/s, the batches of a
model that carry the load and leave half of the SLO for waiting are

    B(m) = {b : b / l(m, b) >= margin q,  l(m, b) <= SLO / 2}
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from control.policies.ramsis.pareto_models import CandidateModel
from control.policies.ramsis.tables import Table
from control.problem.problem import SelectionError

MARGIN = 1.05  # of throughput over load that Jellyfish+ keeps
TOLERATED = 0.01  # largest violation accepted by ModelSwitching and the tuned static choice


@dataclass(frozen=True, slots=True)
class Fixed:
    """``model`` for every query, at most ``most`` of them together."""

    model: str
    most: int


# Choice -> its violation (0..1) in a trial at the given load.
Trial = Callable[[Fixed], float]


def jellyfish(
    models: Sequence[CandidateModel], slo_s: float, share_qps: float, margin: float = MARGIN
) -> Fixed:
    """Return Jellyfish+'s choice: the most accurate model with a batch in B, and its largest one.

    If no model has one, return the fastest model with the largest profiled batch, as in the
    authors' code.
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
    """Return ModelSwitching's choice: the most accurate model with a trial violation below 1 %.

    As in the authors' code, the batch is that of Jellyfish+ without a margin, for Jellyfish+'s
    model, whichever model runs. If every trial fails, return the fastest model.
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
    """Return the most accurate model with a violation below 1 % at some batch, with its best batch.

    The best batch has the least violation; the smallest wins ties. None if no model qualifies.
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
    """Return a choice as a table with equal entries, which a worker can follow.

    Raises ``SelectionError`` for an unknown model or a batch without a profile.
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
    """Return the models by decreasing accuracy; the faster one first in a tie."""
    return sorted(models, key=lambda model: (-model.accuracy, model.latency_s[0]))


def fastest(models: Sequence[CandidateModel]) -> CandidateModel:
    """Return the model with the least latency for one query."""
    return min(models, key=lambda model: (model.latency_s[0], -model.accuracy))

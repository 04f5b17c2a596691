"""Ingress' part of shadow sampling: send a share of the queries a second time."""

from collections.abc import Mapping

from control.per_query.shadowing import Ways, is_sampled, most_accurate_ways, shadow_of
from control.policies import plans_sessions
from schemas.effects import Effect, Send, work_topic
from schemas.pipeline import Pipeline
from schemas.records import Plan, Work
from schemas.release import UNDECLARED

BEARS_SESSIONS = 7  # the first schema release in which work names its slots
REST_S = 1.0  # pause of the shadows after a refusal, when the pipeline has no room


def shadow_sampler(pipeline: Pipeline, accuracies: Mapping[str, float]) -> "ShadowSampler | None":
    """Return the sampler of an ingress; None if the pipeline file samples no shadows."""
    sampled = pipeline.labels is not None and pipeline.labels.shadow_share > 0
    return ShadowSampler(pipeline, accuracies) if sampled else None


class ShadowSampler:
    """Samples the queries that an ingress admits; ``accuracies`` are by "task/variant"."""

    __slots__ = ("_accuracies", "_pipeline", "_rests_s", "_share", "_topic", "_turn", "_ways")

    def __init__(self, pipeline: Pipeline, accuracies: Mapping[str, float]) -> None:
        self._pipeline = pipeline
        self._accuracies = accuracies
        self._share = pipeline.labels.shadow_share if pipeline.labels is not None else 0.0
        self._topic = work_topic(pipeline.root.name)
        self._ways: Ways | None = None
        self._turn = 0
        self._rests_s = float("-inf")

    def change(self, plan: Plan) -> None:
        """Follow a plan's paths; sample none while a node reads an earlier schema release."""
        readable = (plan.release or UNDECLARED) >= BEARS_SESSIONS
        by_session = plans_sessions(self._pipeline, plan.settings.policy)
        if not self._share or not readable or by_session:
            self._ways = None
            return
        self._ways = most_accurate_ways(plan, self._pipeline, self._accuracies)

    def refused(self, now: float) -> None:
        """Record that a query was refused for lack of capacity."""
        self._rests_s = now + REST_S

    def shadows(self, work: Work, now: float) -> list[Effect]:
        """Return the send of the query's shadow, if it has one."""
        ways = self._ways
        if ways is None or now < self._rests_s or not is_sampled(work.origin, self._share):
            return []
        self._turn += 1
        shadow = shadow_of(work, ways, self._turn, now)
        assert shadow.session is not None
        return [Send(self._topic, shadow, shadow.session.stages[0].slot)]

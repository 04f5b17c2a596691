"""Which queries' traces are worth keeping: by outcome. Pure."""

from dataclasses import dataclass

from headrace.traces.trace_context import TraceContext
from operators.outcomes import outcome_of
from schemas.records import ANSWERED, Answer

_WHOLE = 1 << 32


@dataclass(frozen=True, slots=True)
class Sampling:
    """Every miss, every answer that used more than ``slow`` of its time, those that callers keep,
    and a ``share`` of the rest."""

    share: float = 0.01
    slow: float = 0.9

    def keeps(self, answer: Answer, context: TraceContext) -> bool:
        """Return whether to export an answer's trace; the same for the same trace."""
        if context.sampled or outcome_of(answer) != ANSWERED:
            return True
        allowed_s = answer.deadline_s - answer.created_s
        if answer.answered_s - answer.created_s > self.slow * allowed_s:
            return True
        return int(context.trace[-8:], 16) < self.share * _WHOLE

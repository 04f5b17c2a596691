"""The answers that a rig has received, and the outcomes of their queries."""

from collections import Counter
from collections.abc import Iterable, Sequence

from operators.outcomes import outcome_of
from schemas.records import ANSWERED, Answer

WELL_S = 1.0


class NotOneAnswer(AssertionError):
    """An acknowledged query has no answer, or several, which no slow machine excuses."""


class Answers(list[Answer]):
    """Answers in the order of their arrival; grows by ``append`` only, which keeps an index by the
    second in which their queries were created."""

    def __init__(self) -> None:
        super().__init__()
        self._made_in: dict[int, list[Answer]] = {}

    def append(self, answer: Answer) -> None:
        super().append(answer)
        self._made_in.setdefault(int(answer.created_s), []).append(answer)

    def since(self, at_s: float) -> list[Answer]:
        """Return the answers to queries created since ``at_s``."""
        seconds = sorted(second for second in self._made_in if second >= int(at_s))
        return [a for second in seconds for a in self._made_in[second] if a.created_s >= at_s]

    def well_since(self, at_s: float) -> bool:
        """Return whether the newest ``WELL_S`` of queries came after ``at_s`` and all were answered
        in time."""
        newest = self._made_in.get(max(self._made_in, default=0), [])
        recent_s = max((a.created_s for a in newest), default=0.0) - WELL_S
        return recent_s >= at_s and all(in_time(answer) for answer in self.since(recent_s))

    def twice(self) -> list[str]:
        """Return descriptions of the answers to ids with more than one answer."""
        counts = Counter(answer.id for answer in self)
        return [
            f"{a.id} {a.origin} at {a.answered_s:.3f}: {a.outcome} {a.reason}"
            for a in self
            if counts[a.id] > 1
        ]

    def check_single(self) -> None:
        """Raise ``NotOneAnswer`` for an id with more than one answer."""
        if twice := self.twice():
            raise NotOneAnswer(f"answered more than once: {'; '.join(twice)}")


def in_time(answer: Answer) -> bool:
    """Return whether a query was answered in time and complete."""
    return outcome_of(answer) == ANSWERED


def ends(answers: Iterable[Answer]) -> str:
    """Return the counts of outcomes as text."""
    counts = Counter(outcome_of(answer) for answer in answers)
    return ", ".join(f"{count} {end}" for end, count in sorted(counts.items())) or "none"


def recovered_s(answers: Sequence[Answer], since_s: float) -> float:
    """Return the seconds from ``since_s`` to the creation of the last query not answered in time,
    or 0."""
    return max((a.created_s - since_s for a in answers if not in_time(a)), default=0.0)

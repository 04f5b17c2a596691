"""Answers and the shadows of their queries, paired by the query's place on the input topic.

Sides that wait here are lost with the scorer's process: their queries are not compared. Shadow
records that were counted before a restart are skipped, so none is compared twice.
"""

from msgspec import Struct

from control.per_query.shadowing import VALID_S, is_sampled
from operators.join import Accuracies, Combine, Join, OpenQuery, along
from operators.record_size import record_size
from operators.scoring.label_join import Place, WaitingRoom
from schemas.pipeline import Labels, Pipeline
from schemas.records import ANSWERED, Answer, Label, Origin, Value, Work

MOST_OPEN = 10_000  # most shadows with missing branches
COUNTS = ("compared", "same_path", "failed")


class Compared(Struct, frozen=True, gc=False):
    """One side of a comparison: a result, and the paths of its branches as one text.

    ``accuracy`` is the profile's for those paths, 0 to 1; None: unknown.
    """

    id: str
    result: Value
    path: str
    slo_class: str
    answered_s: float
    accuracy: float | None = None


Pair = tuple[Compared, Compared]  # the query's answer, and its shadow's


class ShadowPairs:
    """The sampled answers and shadows that wait for each other; ``counts`` by ``COUNTS``."""

    def __init__(
        self, pipeline: Pipeline, labels: Labels, combine: Combine, accuracies: Accuracies
    ) -> None:
        self._pipeline = pipeline
        self._share = labels.shadow_share
        self._join = Join(pipeline, combine, accuracies)
        self._accuracies = accuracies
        self._open: dict[str, OpenQuery] = {}
        self._answers = WaitingRoom[Compared](labels.memory_bytes // 8, 2 * VALID_S)
        self._shadows = WaitingRoom[Compared](labels.memory_bytes // 8, 2 * VALID_S)
        # Shadows' results and labels of the same queries that wait for each other.
        self._unlabelled = WaitingRoom[Compared](labels.memory_bytes // 8, labels.within_s)
        self._truths = WaitingRoom[Label](labels.memory_bytes // 8, labels.within_s)
        self.counts = dict.fromkeys(COUNTS, 0)

    def answered(self, said: Answer, path: str, place: Place, now: float) -> Pair | None:
        """Keep a query's answer, if the query has a shadow; return the pair if complete."""
        if not self._share or not is_sampled(said.origin, self._share):
            return None
        side = Compared(said.id, said.result, path, said.slo_class, said.answered_s)
        self._answers.add(_name(said.origin), side, record_size(said.result), place)
        self._answers.expire(now)
        return self._pair(_name(said.origin))

    def take(self, work: Work, place: Place, now: float) -> Pair | None:
        """Take branches of a shadow that have ended; return the pair if the shadow is complete and
        its query answered."""
        name = _name(work.origin)
        if name in self._shadows:
            return None
        query = self._open.get(name)
        if query is None:
            self._expire(now)
            query = self._open[name] = OpenQuery(
                work.query_id, work.origin, work.created_s, work.deadline_s, work.slo_class
            )
        if not query.take(work):
            return None
        del self._open[name]
        said = self._join.answer(query, now)
        if said.outcome != ANSWERED or said.incomplete:
            self.counts["failed"] += 1
            return None
        paths = {tuple([hop.key for hop in path]) for path in said.paths}
        found = [along(path, self._accuracies) for path in paths]
        known = [each for each in found if each is not None]
        accuracy = sum(known) / len(known) if known and len(known) == len(found) else None
        text = " + ".join(sorted(" > ".join(path) for path in paths))
        side = Compared(said.id, said.result, text, said.slo_class, now, accuracy)
        self._shadows.add(name, side, record_size(said.result), place)
        self._shadows.expire(now)
        self._unlabelled.add(name, side, record_size(said.result), place)
        self._unlabelled.expire(now)
        return self._pair(name)

    def labelled(self, origin: Origin, label: Label, place: Place, now: float) -> None:
        """Keep the label of an answer, if its query has a shadow."""
        if self._share and is_sampled(origin, self._share):
            self._truths.add(_name(origin), label, record_size(label.truth), place)
            self._truths.expire(now)

    def judged(self, origin: Origin) -> tuple[Compared, Label] | None:
        """Return the result of a query's shadow with the query's label, once."""
        name = _name(origin)
        if not (self._unlabelled.waits(name) and self._truths.waits(name)):
            return None
        return self._unlabelled.take(name), self._truths.take(name)

    def _expire(self, now: float) -> None:
        """Forget the oldest shadows whose branches have not come."""
        while self._open:
            name, query = next(iter(self._open.items()))
            if len(self._open) < MOST_OPEN and now <= query.deadline_s + VALID_S:
                return
            del self._open[name]

    def _pair(self, name: str) -> Pair | None:
        """Return both sides; None if one is missing, or both took the same path."""
        if not (self._answers.waits(name) and self._shadows.waits(name)):
            return None
        one, other = self._answers.take(name), self._shadows.take(name)
        same = one.path == other.path
        self.counts["same_path" if same else "compared"] += 1
        return None if same else (one, other)


def _name(origin: Origin) -> str:
    return f"{origin.partition}-{origin.offset}"

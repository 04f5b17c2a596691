"""The invariants of a schedule: after every record, commit and event, and at its end."""

from collections.abc import Sequence

from benchmarks.schedules.faulty_broker import Broker, Place
from control.checks.structure_check import check_structure
from schemas.codec.single_object import decode
from schemas.effects import (
    OUTPUTS,
    PLANS,
    QUERIES,
    RESULTS,
    Arrived,
    Effect,
    Event,
    Failed,
    Infer,
    Inferred,
    waiting_topic,
    work_topic,
)
from schemas.pipeline import Pipeline
from schemas.records import Answer, Notice, Plan, Work
from streams.codecs.wire import Fetched
from streams.topics import physical

Key = tuple[int, int]  # input partition, offset


class Violated(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """Watches the broker and every node.

    - a query has at most one answer at any time, and exactly one at the end;
    - an input offset is committed only behind its notice, an offset of egress only behind the
      answers of its queries;
    - the commits of one life of a role never go back;
    - every published plan has one reader for each slot in use;
    - nodes that follow one epoch follow the same plan, and none goes back an epoch;
    - a device runs one batch at a time;
    - at the end every record has been committed: what egress, ingress, dispatchers and workers hold
      is bounded.

    ``went_back`` counts commits below an earlier life's: a process that was cut off commits once
    more when it is back. The next reader of its slots repeats records, and egress counts them once.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.answered: dict[Key, Answer] = {}
        self._noticed: set[Key] = set()
        self._done: dict[tuple[str, str, Place], int] = {}
        self._checked: dict[Place, int] = {}
        self._reached: dict[tuple[str, Place], int] = {}
        self.went_back = 0
        self._logs: dict[Place, list[Fetched]] = {}
        self._plans: dict[int, Plan] = {}  # followed by a node, by epoch
        self._epochs: dict[str, int] = {}
        self._busy: dict[str, int] = {}
        self._topics = {logical: physical(pipeline.name, logical) for logical in
                        (QUERIES, OUTPUTS, RESULTS, PLANS)}  # fmt: skip

    # ------------------------------------------------------------------ the broker

    def appended(self, fetched: Fetched) -> None:
        """Check a record that the broker accepted."""
        topic = fetched.topic
        self._logs.setdefault((topic, fetched.slot), []).append(fetched)
        if topic == self._topics[RESULTS]:
            self._answer(decode(fetched.value or b""))
        elif topic == self._topics[OUTPUTS]:
            record = decode(fetched.value or b"")
            if isinstance(record, Notice):
                self._noticed.update((record.partition, q.offset) for q in record.queries)
        elif topic == self._topics[PLANS] and fetched.value is not None:
            self._plan(decode(fetched.value))

    def _answer(self, record: object) -> None:
        if not isinstance(record, Answer):
            raise Violated(f"{record!r} is among the results")
        key = (record.origin.partition, record.origin.offset)
        if key in self.answered:
            first = self.answered[key]
            raise Violated(
                f"{record.id} has two answers: {first.outcome} ({first.reason}) and "
                f"{record.outcome} ({record.reason})"
            )
        self.answered[key] = record

    def _plan(self, record: object) -> None:
        if not isinstance(record, Plan):
            return
        broken = check_structure(record, self._pipeline)
        if broken:
            raise Violated(f"plan {record.epoch} has the wrong structure: {broken}")

    def committed(self, group: str, place: Place, offset: int, life: str) -> None:
        """Check a commit that the broker accepted."""
        key = (group, life, place)
        if offset < self._done.get(key, 0):
            raise Violated(f"{life} committed {offset} of {place} after {self._done[key]}")
        self._done[key] = offset
        reached = self._reached.get((group, place), 0)
        self.went_back += offset < reached
        self._reached[group, place] = max(offset, reached)
        if place[0] in (self._topics[QUERIES], self._topics[OUTPUTS]):
            log = self._logs.get(place, [])
            for at in range(self._checked.get(place, 0), offset):
                self._settled(place, at, log[at])
            self._checked[place] = max(offset, self._checked.get(place, 0))

    def _settled(self, place: Place, offset: int, fetched: Fetched) -> None:
        where = f"{place[0]}[{place[1]}] was committed past {offset}"
        if place[0] == self._topics[QUERIES]:
            if (place[1], offset) not in self._noticed:
                raise Violated(f"{where}, of which egress has no notice")
            return
        record = decode(fetched.value or b"")
        if isinstance(record, Work):
            keys = [(record.origin.partition, record.origin.offset)]
        else:
            keys = [(record.partition, q.offset) for q in record.queries]  # type: ignore[union-attr]
        missing = [key for key in keys if key not in self.answered]
        if missing:
            raise Violated(f"{where}, a record of the unanswered {missing}")

    # ------------------------------------------------------------------ nodes

    def saw(self, node: str, event: Event, effects: Sequence[Effect], now: float) -> None:
        """Check an event of a life of a node."""
        if isinstance(event, Inferred | Failed):
            self._busy.pop(node, None)
        elif isinstance(event, Arrived) and isinstance(event.record, Plan):
            self._follow(node, event.record)
        for effect in effects:
            if isinstance(effect, Infer):
                if node in self._busy:
                    raise Violated(f"{node} runs two batches")
                self._busy[node] = effect.job

    def _follow(self, node: str, plan: Plan) -> None:
        """Check the plans that a node of the data plane follows."""
        if node.startswith("control") or plan.epoch <= self._epochs.get(node, 0):
            return
        self._epochs[node] = plan.epoch
        known = self._plans.setdefault(plan.epoch, plan)
        if known != plan:
            raise Violated(f"{node} follows another plan {plan.epoch} than others")

    # ------------------------------------------------------------------ the end

    def ended(self, broker: Broker) -> None:
        """Check the end of a run, long after the last fault."""
        asked = {
            (slot, each.offset)
            for topic, slot in broker.places(self._topics[QUERIES])
            for each in broker.log((topic, slot))
        }
        lost = sorted(asked - self.answered.keys())
        if lost:
            raise Violated(f"{len(lost)} acknowledged queries have no answer: {lost[:5]}")
        if self.answered.keys() - asked:
            raise Violated(f"{sorted(self.answered.keys() - asked)[:5]} were answered, not asked")
        name = self._pipeline.name
        read = [(f"{name}.ingress", QUERIES), (f"{name}.egress", OUTPUTS)]
        read += [(f"{name}.workers", work_topic(task)) for task in self._pipeline.task_names]
        read += [(f"{name}.dispatchers", waiting_topic(t.name)) for t in self._pipeline.dispatched]
        for group, logical in read:
            for place in broker.places(physical(name, logical)):
                done, end = self._reached.get((group, place), 0), broker.end(place)
                if done < end:
                    raise Violated(f"{place} is committed up to {done} of {end} at the end")

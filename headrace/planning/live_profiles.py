"""Profile configurations through the profilers of a pipeline: requests and results on topics.

Results stay on a compacted topic: finished blocks of any search are never requested again, and the
profiles of other sample sets are the history of a search. A block's number chooses its partition,
so that the profiler with the block's outputs in its cache gets the block again.
"""

import time
from collections.abc import Callable, Iterable, Sequence

from control.policies.compass.search.camo import Floats, Past, Profiled, Proposal
from control.policies.compass.search.configuration_run import ConfigurationRun, ProfileGoal
from control.policies.compass.search.placement_factors import model_bytes
from control.policies.compass.search.profile_store import ProfileStore
from control.policies.compass.search.search_step import search_id
from control.policies.compass.search.sequential_test import (
    Estimate,
    Tested,
    Verdict,
)
from control.problem.session_space import SessionSpace
from headrace.client.topic_clients import Tail
from headrace.errors import Unsuccessful
from headrace.planning.session_search import Step
from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import PROFILE_REQUESTS, PROFILE_RESULTS
from schemas.pipeline import Pipeline
from schemas.records import ProfileRequest, ProfileResult
from streams.kafka.admin.topic_admin import partitions_of
from streams.kafka.kafka_client import producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.topic_contents import read_kept
from streams.topics import physical

POLL_S = 0.05
EXPIRES_S = 60.0  # a request is void after this time: its search may have ended


class LiveProfiles:
    """A ``ProfileSource`` over topics; use it in a ``with`` block.

    ``tend`` is called while it waits. Raises ``BrokerError``, and ``Unsuccessful`` if a profiler
    has another search space.
    """

    sent: Floats | None = None
    population: int | None = None
    parallelism = 1.0
    recorded = False

    def __init__(
        self,
        kafka: KafkaConfig,
        pipeline: Pipeline,
        sessions: SessionSpace,
        sample_set: str,
        session: str,
        *,
        ahead: int = 1,
        tend: Callable[[], None] = lambda: None,
    ) -> None:
        self._pipeline, self._space, self._set = pipeline.name, sessions.space, sample_set
        self._search, self._ahead, self._tend = search_id(session, time.time()), ahead, tend
        self._stages = [stage.name for stage in self._space.stages]
        results = physical(pipeline.name, PROFILE_RESULTS)
        self._requests = physical(pipeline.name, PROFILE_REQUESTS)
        self._partitions = partitions_of(kafka, self._requests)
        self._tail = Tail(kafka, results)  # before the kept ones are read, so that none is missed
        self._known = ProfileStore(self._space)
        self._take(read_kept(kafka, results).values())
        self._known.forget_errors()
        self._producer = producer(kafka)
        self._step = 0
        self.memory: Floats = model_bytes(sessions)

    def __enter__(self) -> "LiveProfiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(1.0)
        self._tail.close()

    @property
    def past(self) -> Sequence[Past]:
        """The profiles of other sample sets, each as a past search, the oldest first."""
        return self._known.past(self._set)

    def profile(
        self, proposal: Proposal, goal: ProfileGoal, until_s: float
    ) -> tuple[Step, Profiled | None] | None:
        """Run the sequential test of a configuration on profilers; None after ``until_s``.

        A configuration that crashes or hangs its operator is rejected without a profile.
        """
        began, c = time.monotonic(), proposal.configuration
        self._step += 1
        run = ConfigurationRun(c, goal, self._ahead, proposal.prior)
        spent_s = 0.0
        while True:
            came = run.take(self._known.blocks(self._set))
            spent_s += sum(block.spent_s for block, asked in came if asked)
            now = time.monotonic()
            if run.failed is not None:
                return self._rejected(proposal, run.failed, now - began, spent_s)
            if run.ended:
                step = self._step_of(proposal, run, now - began, spent_s)
                return step, run.profile
            self._ask(c, run.due(now))
            if now - began > until_s:
                return None
            self._receive()

    def _step_of(
        self, proposal: Proposal, run: ConfigurationRun, wall_s: float, spent_s: float
    ) -> Step:
        cached = [
            name
            for name in self._stages
            if all(each.cached.get(name, 0) == len(each.scores) for each in run.taken)
        ]
        return Step(
            proposal=proposal, tested=run.tested, cached=tuple(cached), profile_s=spent_s,
            wait_s=max(0.0, wall_s - spent_s),
        )  # fmt: skip

    def _rejected(
        self, proposal: Proposal, failed: ProfileResult, wall_s: float, spent_s: float
    ) -> tuple[Step, None]:
        tested = Tested(Verdict.REJECTED, 0, 0.0, Estimate(0.0, 0.0, 1.0))
        step = Step(
            proposal=proposal, tested=tested, cached=(), profile_s=spent_s,
            wait_s=max(0.0, wall_s - spent_s), error=failed.error,
        )  # fmt: skip
        return step, None

    def _ask(self, configuration: int, wanted: Iterable[tuple[int, int]]) -> None:
        for first, upto in wanted:
            request = ProfileRequest(
                search=self._search, pipeline=self._pipeline, space=self._space.digest,
                options=self._space.named(configuration), sample_set=self._set, first=first,
                upto=upto, step=self._step, expires_s=time.time() + EXPIRES_S,
            )  # fmt: skip
            block = first // max(upto - first, 1)
            self._producer.produce(
                self._requests, encode(request), partition=block % self._partitions
            )
        self._producer.poll(0)

    def _receive(self) -> None:
        self._tend()
        self._take(self._tail.take(POLL_S))

    def _take(self, values: Iterable[bytes]) -> None:
        for value in values:
            try:
                record = decode(value)
            except CodecError:
                continue  # a foreign record
            if not isinstance(record, ProfileResult):
                continue
            self._known.keep(record)
            refused = record.error and record.space != self._space.digest
            if refused and record.search == self._search:
                raise Unsuccessful(record.error)

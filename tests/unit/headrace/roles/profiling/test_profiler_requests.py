"""Requests of a profiler: void requests, state after errors, and samples."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from msgspec.structs import replace

from control.policies.compass.search.search_step import search_id
from control.problem.sample_sets import InputSet
from headrace.errors import PipelineError
from headrace.roles.input_topic.recent_inputs import RecentInputs
from headrace.roles.profiling.loaded_operators import one_of_each_variant
from headrace.roles.profiling.profiler_role import finished_blocks, is_final, result_key, works
from headrace.roles.profiling.samples import MOST_SETS, Samples
from headrace.roles.profiling.waiting_requests import (
    MOST_SEARCHES,
    VALID_S,
    WaitingRequests,
    take_requests,
)
from operators.profiler import Sample
from schemas.codec.single_object import encode
from schemas.records import ProfileRequest, ProfileResult
from streams.kafka.kafka_errors import BrokerError
from tests.session_world import a_space


def a_request(step: int = 1, first: int = 0, expires_s: float = 10.0) -> ProfileRequest:
    return ProfileRequest(
        search="s", pipeline="p", space="abc", options={}, sample_set="workload@1", first=first,
        upto=first + 10, step=step, expires_s=expires_s,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("running_since", "loading_since", "turned_s", "alive"),
    [
        (0.0, 0.0, 970.0, True),
        (0.0, 0.0, 959.0, False),
        (30.0, 0.0, 29.0, True),
        (0.0, 401.0, 400.0, True),  # as long as a worker may load
        (0.0, 399.0, 398.0, False),
        (0.0, 0.0, float("-inf"), False),
    ],
)
def test_a_profiler_lives_while_its_loop_turns_or_an_operator_runs_or_loads(
    running_since: float, loading_since: float, turned_s: float, alive: bool
) -> None:
    assert works(running_since, loading_since, turned_s, now_s=1000.0) is alive


def test_a_later_step_voids_the_earlier_ones() -> None:
    waiting, place = WaitingRequests(), TopicPartition("requests", 0, 1)
    for step in (1, 1, 2):
        waiting.take(place, a_request(step), 0.0)
    found = [waiting.next(0.0) for _ in range(4)]
    assert [None if each is None else each[1] for each in found] == [None, None, a_request(2), None]
    assert found[0] is not None  # it is committed all the same
    assert found[3] is None


def test_the_steps_of_a_sessions_earlier_search_void_none_of_its_next_one() -> None:
    waiting, place = WaitingRequests(), TopicPartition("requests", 0, 1)
    for step, began_s in ((7, 1.0), (1, 2.0)):
        waiting.take(place, replace(a_request(step), search=search_id("cli", began_s)), 0.0)
    found = [waiting.next(0.0) for _ in range(2)]
    assert [each[1].step for each in found if each and each[1]] == [7, 1]


def test_steps_of_searches_of_long_ago_are_forgotten() -> None:
    waiting, place = WaitingRequests(), TopicPartition("requests", 0, 1)
    for search in range(MOST_SEARCHES + 1):
        for step in (2, 1):
            waiting.take(place, replace(a_request(step), search=f"s@{search}"), 0.0)
    found = [waiting.next(0.0) for _ in range(2 * MOST_SEARCHES + 2)]
    assert [each[1].search for each in found if each and each[1] and each[1].step == 1] == ["s@0"]


@pytest.mark.parametrize("ahead_s", [-3600.0, 0.0, 90.0])
def test_requests_expire_whatever_the_clocks_of_the_hosts(ahead_s: float) -> None:
    """A profiler whose clock was more than 60 s ahead ran no request, and did not say so."""
    waiting, place = WaitingRequests(), TopicPartition("requests", 0, 1)
    for first, sent_s in ((0, -50.0), (10, -15.0), (20, 0.0)):
        request = a_request(first=first, expires_s=1e9 - ahead_s + sent_s + VALID_S)
        waiting.take(place, request, 1e9)
    found = [waiting.next(1e9 + later_s) for later_s in (20.0, 40.0, 61.0)]
    assert [each and each[1] and each[1].first for each in found] == [None, 10, None]


def test_requests_of_a_search_that_ended_before_the_profiler_began_are_mostly_void() -> None:
    waiting, place = WaitingRequests(), TopicPartition("requests", 0, 1)
    for minute in range(60):
        waiting.take(place, a_request(first=minute, expires_s=60.0 * minute), 7.0)
    found = [waiting.next(8.0) for _ in range(60)]
    assert [each[1].first for each in found if each and each[1]] == [59]


def test_requests_of_revoked_partitions_are_left_to_others() -> None:
    waiting = WaitingRequests()
    for partition in (0, 1):
        waiting.take(TopicPartition("requests", partition, 1), a_request(), 0.0)
    waiting.drop([TopicPartition("requests", 0)])
    assert [place.partition for place, _ in waiting.requests] == [1]


def test_requests_without_samples_wait_behind_others_and_are_not_committed() -> None:
    waiting = WaitingRequests()
    for offset in (5, 6):
        waiting.take(TopicPartition("requests", 0, offset + 1), a_request(first=offset), 0.0)
    early = waiting.next(0.0)
    assert early is not None
    assert early[1] is not None
    waiting.deferred.append((early[0], early[1]))
    later = waiting.next(0.0)
    assert later is not None
    assert later[1] == a_request(first=6)
    assert waiting.committed(later[0]).offset == 5  # a profiler that takes over runs it
    assert waiting.committed(TopicPartition("requests", 1, 9)).offset == 9
    assert waiting.next(0.0) is None
    waiting.resume()
    assert waiting.next(0.0) == early
    assert waiting.committed(early[0]).offset == 6
    waiting.deferred.append((early[0], early[1]))
    waiting.drop([TopicPartition("requests", 0)])
    assert not waiting.deferred


def a_result(*scores: float, error: str = "") -> ProfileResult:
    return ProfileResult(
        pipeline="p", space="abc", options={}, sample_set="workload@1", first=0, scores=scores,
        seconds={}, bytes={}, cached={}, input_bytes=0.0, spent_s=0.0, device="cpu",
        profiler="profiler-1", finished_s=1.0, error=error,
    )  # fmt: skip


def test_only_blocks_with_scores_of_an_earlier_process_count_as_finished() -> None:
    kept = {
        b"block/0-10": encode(a_result(0.5, 1.0)),
        b"error/0-10": encode(a_result(error="no such weights")),
        b"ping/-1-0": encode(a_result()),  # of another profiler, whose name is not awaited
        b"garbage": b"{}",
    }
    assert finished_blocks(kept) == {b"block/0-10": kept[b"block/0-10"]}


def test_blocks_in_which_a_set_of_labelled_inputs_ended_are_run_again() -> None:
    block = replace(a_result(0.5, 1.0), sample_set=InputSet("cam", 1.0).name)
    kept = {b"short/0-10": encode(block), b"whole/0-2": encode(block)}
    assert finished_blocks(kept) == {b"whole/0-2": kept[b"whole/0-2"]}
    assert [is_final(block, upto) for upto in (2, 3)] == [True, False]
    between = replace(block, sample_set=InputSet("cam", 1.0, 2.0).name)
    assert is_final(between, 10)


class Requests:
    """A reader with two requests; the profiler must not wait for more."""

    def __init__(self) -> None:
        self.messages = [Message(a_request(first=0)), Message(a_request(first=10))]

    def poll(self, timeout_s: float) -> "Message | None":
        return self.messages.pop(0) if self.messages else None

    def consume(self, most: int, timeout_s: float) -> "list[Message]":
        assert timeout_s == 0, "it waits for `most` requests or the whole time"
        found, self.messages = self.messages, []
        return found


class Message:
    def __init__(self, request: ProfileRequest) -> None:
        self._request = request

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "requests"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._request.first

    def value(self) -> bytes:
        return encode(self._request)


def test_requests_are_taken_as_soon_as_they_come() -> None:
    reader: Any = Requests()
    waiting = WaitingRequests()
    take_requests(reader, waiting, 0.1)
    assert [request.first for _, request in waiting.requests] == [0, 10]
    take_requests(reader, waiting, 0.1)
    assert len(waiting.requests) == 2


def test_blocks_have_keys_of_their_own() -> None:
    keys = {
        result_key(a_request(first=first), configuration)
        for first in (0, 10)
        for configuration in (0, 1)
    }
    assert len(keys) == 4


def no_inputs(inputs: InputSet) -> RecentInputs:
    raise AssertionError("no inputs of sessions are asked for")


class Letters:
    sets = 0

    def queries(self, rng: Any) -> Iterator[tuple[str, int]]:
        self.sets += 1
        return ((letter, number) for number, letter in enumerate("abcde"))


def test_samples_are_drawn_once_in_order_and_may_end() -> None:
    samples = Samples(Letters(), no_inputs)
    assert [s.payload for s in samples.of("workload@7", 2, 4)] == ["c", "d"]
    assert [s.payload for s in samples.of("workload@7", 0, 9)] == list("abcde")
    assert samples.of("workload@7", 9, 12) == []
    with pytest.raises(PipelineError, match="no sample set 'mine'; name one as workload@7"):
        samples.of("mine", 0, 1)
    with pytest.raises(PipelineError, match="'workload@7': the pipeline file has no workload"):
        Samples(None, no_inputs).of("workload@7", 0, 1)


class Untrue:
    def queries(self, rng: Any) -> Iterator[Any]:
        return iter([("a", 1), "ab"])


def test_a_query_without_a_truth_is_no_sample() -> None:
    samples = Samples(Untrue(), no_inputs)
    with pytest.raises(PipelineError, match="query 1 of the workload is no pair of payload and"):
        samples.of("workload@1", 0, 2)


class Failing:
    def queries(self, rng: Any) -> Iterator[Any]:
        yield "a", 1
        raise OSError("the disk is gone")


def test_a_workload_that_raises_has_no_end_there() -> None:
    """From the second request on the set ended at the query that raised."""
    samples = Samples(Failing(), no_inputs)
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            samples.of("workload@1", 0, 2)


class Topics:
    """Recent inputs whose broker is away while ``away``."""

    def __init__(self, away: bool) -> None:
        self.away, self.closed = away, False

    def of(self, first: int, upto: int) -> list[Sample] | None:
        if self.away:
            raise BrokerError("the broker does not answer")
        return [Sample(first, "x")]

    def close(self) -> None:
        self.closed = True


def test_inputs_that_could_not_be_read_are_read_anew() -> None:
    opened = [Topics(away=True), Topics(away=False)]
    readers = iter(opened)
    samples = Samples(None, lambda inputs: next(readers))  # type: ignore[arg-type, return-value]
    name = InputSet("cam", 1.0).name
    with pytest.raises(BrokerError):
        samples.of(name, 0, 1)
    assert samples.of(name, 0, 1) == [Sample(0, "x")]
    assert [each.closed for each in opened] == [True, False]


def test_of_the_workloads_sets_the_last_used_are_kept_and_others_drawn_again() -> None:
    letters = Letters()
    samples = Samples(letters, no_inputs)
    for seed in (*range(MOST_SETS), 0, MOST_SETS):
        samples.of(f"workload@{seed}", 0, 1)
    assert letters.sets == MOST_SETS + 1
    for seed in (0, 1):
        assert [s.payload for s in samples.of(f"workload@{seed}", 2, 4)] == ["c", "d"]
    assert letters.sets == MOST_SETS + 2


def test_an_operator_of_each_variant_is_loaded_before_requests_are_taken() -> None:
    assert one_of_each_variant(a_space()) == ["scan/v@scale=1", "read/v@votes=1", "read/w@votes=1"]

"""Answers of a profiler to requests: results, errors, and what it retains."""

import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace as replaced
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from control.problem.sample_sets import InputSet
from control.problem.space import Knob, Space, Stage
from headrace.config.pipeline_file import read_pipeline_file, search_space
from headrace.errors import PipelineError
from headrace.roles.input_topic.recent_inputs import RecentInputs
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.profiling import profiler_role
from headrace.roles.profiling.profiler_role import (
    HANGS_S,
    LOOK_S,
    STRIKES,
    CallWatch,
    ProfilerRole,
    result_key,
    run_profiler,
)
from headrace.roles.profiling.samples import Samples
from schemas.codec.single_object import decode
from schemas.records import ProfileRequest, ProfileResult
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.live.crash_journal import CrashJournal

YAML = """\
name: words
slo: {latency: 150ms, accuracy: 0.9}
workload: tests.unit.headrace.roles.profiling.test_profiler_role:Words
policy: compass
policies:
  compass: {kind: compass}
tasks:
  read:
    knobs: {upper: [false, true]}
    variants:
      read:
        operator: "tests.unit.headrace.roles.profiling.test_profiler_role:Read"
        arguments: {upper: $upper}
cluster:
  tiers:
    cloud: {speed: 1, count: 2, price: 0.2}
"""
SPACE = Space(
    (Stage("read", "", ("cloud",)),), (Knob("read", "upper", ("false", "true")),), ("cloud",)
)


class Words:
    def queries(self, rng: Any) -> Iterator[tuple[str, str]]:
        return ((word, word.upper()) for word in ("ab", "cd", "e"))

    def score(self, result: Any, truth: str) -> tuple[int, int]:
        return int(result == [truth]), 1

    def task_inputs(self, task: str, rng: Any) -> Iterator[str]:
        return iter(())

    def task_score(self, task: str, output: Any, truth: Any) -> tuple[int, int]:
        return 0, 1


class Read:
    exits = ""  # the method that calls ``sys.exit``

    def __init__(self, upper: bool) -> None:
        self._upper = upper

    def load(self, device: str) -> None:
        if self.exits == "load":
            raise SystemExit("no licence")

    def began(self) -> None:
        """Begin a call."""

    def predict(self, batch: list[Any]) -> list[str]:
        self.began()
        if self.exits == "predict":
            raise SystemExit("no licence")
        return [str(each).upper() if self._upper else str(each) for each in batch]


def no_inputs(inputs: InputSet) -> RecentInputs:
    raise AssertionError("no inputs of sessions are asked for")


@pytest.fixture
def a_role(tmp_path: Path) -> Callable[[], ProfilerRole]:
    """Return a function that starts a profiler as if in a new process."""
    path = tmp_path / "words.yaml"
    path.write_text(YAML)
    file = read_pipeline_file(path)
    journal, sessions = tmp_path / "journal.json", replaced(search_space(file), space=SPACE)
    return lambda: ProfilerRole(
        file, sessions, "profiler-0", "cpu", {}, CrashJournal(journal), no_inputs
    )


def a_request(upper: str = "true", first: int = 0) -> ProfileRequest:
    return ProfileRequest(
        search="s", pipeline="words", space=SPACE.digest, options={"read.upper": upper},
        sample_set="workload@1", first=first, upto=first + 2, step=1, expires_s=10.0,
    )  # fmt: skip


def result(answered: tuple[bytes, bytes] | None) -> ProfileResult:
    assert answered is not None
    record = decode(answered[1])
    assert isinstance(record, ProfileResult)
    return record


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("gpu", "device 'gpu' is none; devices are cpu and cuda:N"),
        pytest.param("cuda:99", "is not here", marks=pytest.mark.thorough),  # it imports torch
    ],
)
def test_a_device_that_is_not_here_is_refused_at_the_start(
    tmp_path: Path, device: str, sentence: str
) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(YAML)
    kafka = KafkaConfig("127.0.0.1:1")
    with pytest.raises(PipelineError, match=sentence):
        run_profiler(read_pipeline_file(path), kafka, "profiler-0", device, LogOptions())


def test_a_block_is_run_once(a_role: Callable[[], ProfilerRole]) -> None:
    role = a_role()
    first = role.answered(a_request(), 1.0)
    assert result(first).scores == (1.0, 1.0)
    assert role.answered(a_request(), 2.0) == first


def test_only_a_single_call_of_an_operator_may_count_as_hanging(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    operators, since = a_role().operators, list[float]()
    monkeypatch.setattr(Read, "began", lambda _: since.append(operators.running_since))
    operators.run(0, 0, ["ab", "cd", "e"])
    assert 0.0 < since[0] < since[1] < since[2]
    assert operators.running_since == 0.0


def test_a_block_that_another_profiler_has_finished_is_not_run_again(
    a_role: Callable[[], ProfilerRole],
) -> None:
    """A profiler ended before it had committed the requests behind one that waited for samples."""
    first = a_role().answered(a_request(), 1.0)
    assert first is not None
    other = a_role()
    other.learn(dict([first]))
    assert other.answered(a_request(), 2.0) == first


def test_newest_finished_blocks_are_kept(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiler_role, "MOST_FINISHED", 2)
    role = a_role()
    for first in (0, 1, 2):
        role.answered(a_request(first=first), 1.0)
    assert [result(role.answered(a_request(first=first), 2.0)).finished_s for first in (2, 0)] == [
        1.0,
        2.0,
    ]


def test_a_request_that_ended_the_process_twice_is_an_error(
    a_role: Callable[[], ProfilerRole], tmp_path: Path
) -> None:
    key = result_key(a_request(), 1).decode()
    for _ in range(STRIKES):
        assert result(a_role().answered(a_request(), 1.0)).error == ""
        CrashJournal(tmp_path / "journal.json").began([key])  # and died
    role = a_role()
    found = result(role.answered(a_request(), 1.0))
    assert (found.scores, found.error) == ((), "it crashed the profiler 2 times")
    assert result(role.answered(a_request("false"), 1.0)).error == ""


def test_a_request_that_ended_the_process_runs_again_after_a_restart_on_purpose(
    a_role: Callable[[], ProfilerRole], tmp_path: Path
) -> None:
    """It was answered by the error for ever, also with a mended operator."""
    key = result_key(a_request(), 1).decode()
    for _ in range(STRIKES):
        CrashJournal(tmp_path / "journal.json").began([key])  # and died
    role = a_role()
    assert result(role.answered(a_request(), 1.0)).error
    role.forget_crashes()
    assert result(a_role().answered(a_request(), 1.0)).error == ""


@pytest.mark.parametrize(
    ("where", "scores", "error"),
    [("load", (), "SystemExit: no licence"), ("predict", (0.0, 0.0), "")],
)
def test_an_operator_that_calls_exit_does_not_end_the_profiler(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch,
    where: str, scores: tuple[float, ...], error: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(Read, "exits", where)
    role = a_role()
    role.operators.warm()
    found = result(role.answered(a_request(), 1.0))
    assert (found.scores, found.error) == (scores, error)


class SmallDevice:
    """A device with room for one operator; each holds a cycle, as many of torch's do."""

    def __init__(self) -> None:
        self._held: list[weakref.ref[Read]] = []

    def take(self, operator: Any) -> None:
        """Hold an operator; raise torch's error if another one is alive."""
        operator.itself = operator
        if any(each() not in (None, operator) for each in self._held):
            raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 MiB")
        self._held.append(weakref.ref(operator))


@pytest.mark.parametrize("where", ["load", "predict"])
def test_operators_make_room_for_the_next_one(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A sample that failed for lack of memory would score 0."""
    device, plain = SmallDevice(), Read.predict

    def predict(self: Read, batch: list[Any]) -> list[str]:
        device.take(self)
        return plain(self, batch)

    taking = {"load": lambda self, _: device.take(self), "predict": predict}
    monkeypatch.setattr(Read, where, taking[where])
    role = a_role()
    for upper, first, scores in (("false", 0, 0.0), ("true", 0, 1.0), ("true", 1, 1.0)):
        found = result(role.answered(a_request(upper, first), 1.0))
        assert (found.scores, found.error) == ((scores, scores), "")


def test_a_lack_of_memory_of_a_lone_operator_is_its_items_failure(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(self: Read, batch: list[Any]) -> list[str]:
        raise MemoryError

    monkeypatch.setattr(Read, "predict", predict)
    assert result(a_role().answered(a_request(), 1.0)).scores == (0.0, 0.0)


@pytest.mark.parametrize("ends", [None, RuntimeError("no file")])
def test_a_profiler_shows_that_it_loads_an_operator(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch, ends: Exception | None
) -> None:
    role, during = a_role(), []

    def load(self: Read, device: str) -> None:
        during.append(role.operators.loading_since)
        if ends is not None:
            raise ends

    monkeypatch.setattr(Read, "load", load)
    role.answered(a_request(), 1.0)
    assert [since > 0.0 for since in during] == [True]
    assert role.operators.loading_since == 0.0


def test_an_error_that_ends_the_process_is_a_strike(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ended(BaseException):
        """An error that no role catches."""

    def ended(self: Words, result: Any, truth: str) -> tuple[int, int]:
        raise Ended

    monkeypatch.setattr(Words, "score", ended)
    for _ in range(STRIKES):
        with pytest.raises(Ended):
            a_role().answered(a_request(), 1.0)
    assert result(a_role().answered(a_request(), 1.0)).error == "it crashed the profiler 2 times"


def test_a_lost_device_ends_the_profiler_with_a_strike(
    a_role: Callable[[], ProfilerRole], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later sample would count as wrong."""

    class AcceleratorError(RuntimeError):
        error_code = 710

    def faulty(self: Read, batch: list[Any]) -> list[str]:
        raise AcceleratorError("device-side assert triggered")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))
    monkeypatch.setattr(Read, "predict", faulty)
    for _ in range(STRIKES):
        with pytest.raises(AcceleratorError):
            a_role().answered(a_request(), 1.0)
    assert result(a_role().answered(a_request(), 1.0)).error == "it crashed the profiler 2 times"


def test_an_operator_that_does_not_return_is_an_error(a_role: Callable[[], ProfilerRole]) -> None:
    role = a_role()
    role.running = a_request()
    assert role.hung(HANGS_S, 7.0) is None
    found = result(role.hung(HANGS_S + 0.1, 7.0))
    assert (found.scores, found.error) == ((), "an operator did not return within 60 s")
    role.running = None
    assert role.hung(1e9, 7.0) is None


def test_seconds_in_which_the_profiler_was_stopped_are_not_those_of_a_call() -> None:
    """The woken profiler rejected the configuration that it ran, and ended."""
    calls = CallWatch()
    assert calls.ran_s(0.0, 9.5) == 0.0
    assert calls.ran_s(10.0, 10.5) == 0.5
    assert calls.ran_s(10.0, 11.5) == 1.5
    assert calls.ran_s(10.0, 1000.0) <= 1.5 + 2 * LOOK_S
    assert calls.ran_s(1000.5, 1001.0) == 0.5
    assert calls.ran_s(0.0, 1002.0) == 0.0


def test_a_request_of_another_space_is_an_error(a_role: Callable[[], ProfilerRole]) -> None:
    role = a_role()
    wanted = (
        "profiler-0 has another search space or other operators; restart it with the changed file"
    )
    for other in (
        replace(a_request(), space="another"),
        replace(a_request(), options={"read.upper": "maybe"}),
    ):
        refused = result(role.answered(other, 1.0))
        assert (refused.error, refused.space) == (wanted, SPACE.digest)


def test_a_set_with_fewer_samples_ends_early(a_role: Callable[[], ProfilerRole]) -> None:
    role = a_role()
    assert result(role.answered(a_request(first=2), 1.0)).scores == (1.0,)
    assert result(role.answered(a_request(first=4), 1.0)).scores == ()


def test_a_request_waits_while_the_broker_is_away(
    a_role: Callable[[], ProfilerRole], caplog: pytest.LogCaptureFixture
) -> None:
    """Its configuration was rejected."""

    def away(inputs: InputSet) -> RecentInputs:
        raise BrokerError("the broker does not answer")

    role = a_role()
    role._samples = Samples(Words(), away)
    recent = replace(a_request(), sample_set=InputSet("cam", 1.0).name)
    for absence in (1, 2):  # each is logged once
        assert role.answered(recent, 1.0) is None
        assert role.answered(recent, 1.0) is None
        assert caplog.text.count("the broker does not answer") == absence
        assert role.answered(a_request(first=2 * absence), 1.0) is not None

"""The profiler's process: take requests, run configurations on samples, write results.

It takes requests once it has loaded an operator of each variant, since the clock of a search runs
from its first block on.
A request is committed once its result is delivered. A restarted profiler knows the finished blocks
from the results topic and writes such a result again instead of running it; so does one that takes
over the requests of another, which may have ended before it could commit. A request that ended
the process twice (a segmentation fault, out of memory), or whose operator takes longer than
``HANGS_S``, gets a result with that error. It runs again once the profiler was ended by a signal,
because its operator may be mended.
"""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace as with_bootstrap
from functools import partial
from typing import Any

from confluent_kafka import Consumer, Producer
from msgspec.structs import replace

from control.policies.compass.search.prefix_cache import PrefixCache
from control.problem.sample_sets import InputSet, Truth, input_set
from control.problem.session_space import SessionSpace
from headrace.client.topic_clients import Tail
from headrace.config.pipeline_file import PipelineFile, search_space
from headrace.config.user_functions import load_combine, load_scorer, load_workload
from headrace.processes import run_directory
from headrace.roles.input_topic.recent_inputs import InputsBetween, RecentInputs
from headrace.roles.observability.log_options import LogOptions
from headrace.roles.observability.observability import observed
from headrace.roles.profiling.loaded_operators import Operators
from headrace.roles.profiling.present_devices import check_device
from headrace.roles.profiling.samples import ReadBack, Samples
from headrace.roles.profiling.waiting_requests import WaitingRequests, take_requests
from operators.calls.device_faults import device_lost
from operators.calls.user_frames import error_sentence
from operators.join import as_list
from operators.profiler import Judge, Profile, Profiler
from operators.scoring.scorer import exact_match, parts_of
from schemas.codec.single_object import CodecError, decode, encode
from schemas.effects import PROFILE_REQUESTS, PROFILE_RESULTS
from schemas.records import ProfileRequest, ProfileResult
from streams.kafka.admin.preflight import prepare
from streams.kafka.kafka_client import consumer, producer
from streams.kafka.kafka_config import KafkaConfig
from streams.kafka.kafka_errors import BrokerError
from streams.kafka.topic_contents import read_kept
from streams.live.crash_journal import CrashJournal
from streams.live.executors import LOAD_S
from streams.observers.health import Health
from streams.topics import physical

log = logging.getLogger("headrace.profiler")

STRIKES = 2  # deaths of the process by one request
HANGS_S = 60.0  # seconds of one operator's call
LOOK_S = 1.0  # interval at which the running call is looked at
POLL_S = 0.1
SESSION_MS = 6000  # a dead profiler's requests go to the others after this time
WRITTEN_WITHIN_S, READ_WITHIN_S = 30.0, 5.0
TURNS_S = 40.0  # without a turn of its loop for this long, outside an operator, it hangs

MOST_FINISHED = 100_000  # results in memory, some 1 KB each; an older block is run again


def result_key(request: ProfileRequest, configuration: int | None) -> bytes:
    """Return the key of a request's result on the compacted topic."""
    where = f"{request.space}/{request.sample_set}/{configuration}"
    return f"{where}/{request.first}-{request.upto}".encode()


def judge_of(file: PipelineFile, truth: Truth, workload: Any) -> Judge:
    """Return the function that compares an answer with a truth: the workload's, or for labels the
    scorer's. Raises ``PipelineError``."""
    labels = file.pipeline.labels
    if truth is not Truth.FEEDBACK or labels is None:
        return workload.score  # type: ignore[no-any-return]
    scorer = load_scorer(labels) or exact_match
    return lambda result, truth: parts_of(scorer(result, truth))


class ProfilerRole:
    """One profiler's state: the operators, the cache, what is finished."""

    def __init__(
        self, file: PipelineFile, sessions: SessionSpace, name: str, device: str,
        finished: dict[bytes, bytes], journal: CrashJournal, read_back: ReadBack,
    ) -> None:  # fmt: skip
        self._sessions, self._name, self._device = sessions, name, device
        self._finished, self._journal = finished, journal
        workload = load_workload(file) if file.workload else None
        self._samples = Samples(workload, read_back)
        self.operators = Operators(file, sessions, device)
        self._profiler = Profiler(
            file.pipeline, sessions.space, PrefixCache(sessions.cache_bytes),
            load_combine(file.pipeline) or as_list, judge_of(file, sessions.truth, workload),
            sessions.reference,
        )  # fmt: skip
        self._unread = ""  # why inputs cannot be read at present
        self.running: ProfileRequest | None = None
        self.turned_s = float("-inf")  # the loop's last turn, on the monotonic clock

    def answered(self, request: ProfileRequest, now_s: float) -> tuple[bytes, bytes] | None:
        """Return the key and the value of a request's result; None if it has to wait for
        samples."""
        configuration = self._sessions.space.index_of(request.options)
        key = result_key(request, configuration)
        if key in self._finished:
            return key, self._finished[key]
        self.running = request
        result = self._run(request, configuration, key.decode())
        self.running = None
        if result is None:
            return None
        value = encode(replace(result, finished_s=now_s))
        if is_final(result, request.upto):
            self._keep(key, value)
        return key, value

    def _keep(self, key: bytes, value: bytes) -> None:
        self._finished[key] = value
        if len(self._finished) > MOST_FINISHED:
            del self._finished[next(iter(self._finished))]

    def learn(self, kept: Mapping[bytes, bytes]) -> None:
        """Know the finished blocks among results by key, which other profilers have written."""
        for key, value in finished_blocks(kept).items():
            self._keep(key, value)

    def forget_crashes(self) -> None:
        """Let requests that ended the process run again after a restart on purpose."""
        self._journal.forget()

    def hung(self, ran_s: float, now_s: float) -> tuple[bytes, bytes] | None:
        """Return the key and the value of the running request's result, an error, if a call of its
        operator has run for longer than ``HANGS_S``; else None."""
        request = self.running
        if request is None or ran_s <= HANGS_S:
            return None
        why = f"an operator did not return within {HANGS_S:g} s"
        log.error("%s: %s", request.options, why)
        configuration = self._sessions.space.index_of(request.options)
        result = self._result(request, Profile(), why)
        return result_key(request, configuration), encode(replace(result, finished_s=now_s))

    def _run(
        self, request: ProfileRequest, configuration: int | None, key: str
    ) -> ProfileResult | None:
        if request.space != self._sessions.space.digest or configuration is None:
            why = (
                f"{self._name} has another search space or other operators; restart it with the "
                "changed file"
            )
            log.warning(why)
            refused = self._result(request, Profile(), why)
            # Its own space: the configuration is not at fault.
            return replace(refused, space=self._sessions.space.digest)
        if self._journal.strikes.get(key, 0) >= STRIKES:
            return self._result(request, Profile(), f"it crashed the profiler {STRIKES} times")
        self._journal.began([key])
        result = self._profiled(request, configuration)
        self._journal.ended()  # not if an error ends the process: the request gets a strike then
        return result

    def _profiled(self, request: ProfileRequest, configuration: int) -> ProfileResult | None:
        try:
            samples = self._samples.of(request.sample_set, request.first, request.upto)
            self._unread = ""
            if samples is None:
                return None
            found = self._profiler.profile(
                configuration, request.sample_set, samples, self.operators.run
            )
        except BrokerError as error:
            if str(error) != self._unread:  # it tries again at once
                self._unread = str(error)
                log.warning("requests on %s wait: %s", request.sample_set, error)
            return None
        except (Exception, SystemExit) as error:
            if device_lost(error):
                raise  # only a new process can use the device
            return self._result(request, Profile(), error_sentence(error))
        return self._result(request, found, "")

    def _result(self, request: ProfileRequest, found: Profile, error: str) -> ProfileResult:
        stages = [stage.name for stage in self._sessions.space.stages]
        costs = dict(zip(stages, found.stages, strict=False))
        return ProfileResult(
            pipeline=request.pipeline, space=request.space, options=request.options,
            sample_set=request.sample_set, first=request.first, scores=tuple(found.scores),
            seconds={name: cost.seconds for name, cost in costs.items()},
            bytes={name: cost.bytes for name, cost in costs.items()},
            cached={name: cost.cached for name, cost in costs.items()},
            input_bytes=found.input_bytes, spent_s=found.spent_s, device=self._device,
            profiler=self._name, finished_s=0.0, error=error, search=request.search,
        )  # fmt: skip


def finished_blocks(kept: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the results on the topic that need no new run.

    ``kept`` is by the keys of ``result_key``.
    """
    return {key: value for key, value in kept.items() if _is_kept(key, value)}


def _is_kept(key: bytes, value: bytes) -> bool:
    try:
        record = decode(value)
        upto = int(key.rpartition(b"-")[2])
    except (CodecError, ValueError):
        return False
    return isinstance(record, ProfileResult) and is_final(record, upto)


def is_final(result: ProfileResult, upto: int) -> bool:
    """Return whether the result of a block that ends before sample ``upto`` needs no new run.

    Errors may pass with a restart, answers to pings are those of one profiler, and a set of
    labelled inputs that ended within the block grows.
    """
    found = input_set(result.sample_set)
    grows = found is not None and found.labelled
    return len(result.scores) >= (upto - result.first if grows else 1)


def run_profiler(
    file: PipelineFile, kafka: KafkaConfig, name: str, device: str, logs: LogOptions
) -> None:
    """Serve as a profiler until SIGTERM or SIGINT; raises ``PipelineError`` and ``BrokerError``."""
    check_device(device, device)
    pipeline, sessions = file.pipeline, search_space(file)
    prepare(kafka, pipeline, "profiler")
    results, requests = (physical(pipeline.name, t) for t in (PROFILE_RESULTS, PROFILE_REQUESTS))
    written = Tail(kafka, results)  # before the kept ones are read, so that none is missed
    role = ProfilerRole(
        file, sessions, name, device, finished_blocks(dict(read_kept(kafka, results))),
        CrashJournal(run_directory(pipeline.name) / f"{name}.profiling.json"),
        partial(_read_back, kafka, file),
    )  # fmt: skip
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    reader = consumer(kafka, f"{pipeline.name}.profilers", **{"session.timeout.ms": SESSION_MS})
    writer = producer(kafka)
    with observed(name, pipeline, logs) as observers, closing(reader), closing(written):
        role.operators.warm()
        health = next(each for each in observers if isinstance(each, Health))
        watched = role, writer, results, partial(health.beat, name)
        threading.Thread(target=_watch, args=watched, name="hangs", daemon=True).start()
        log.info("%s is ready for requests", name)
        _serve(role, reader, writer, written, (requests, results), stopped)
        role.forget_crashes()


def _read_back(
    kafka: KafkaConfig, file: PipelineFile, inputs: InputSet
) -> RecentInputs | InputsBetween:
    source = input_source(kafka, file, inputs.session)
    if inputs.labelled:
        return RecentInputs(kafka, source, file.pipeline, inputs)
    return InputsBetween(source, file.pipeline, inputs)


def input_source(kafka: KafkaConfig, file: PipelineFile, session: str) -> KafkaConfig:
    """Return the broker that has a session's inputs, reached with the settings of ``kafka``."""
    return with_bootstrap(kafka, bootstrap=file.inputs.get(session, kafka.bootstrap))


def _serve(
    role: ProfilerRole, reader: Consumer, writer: Producer, written: Tail, topics: tuple[str, str],
    stopped: threading.Event,
) -> None:  # fmt: skip
    """Answer requests until ``stopped``; ``topics`` are those of requests and of results, which
    ``written`` follows."""
    waiting, (requests, results) = WaitingRequests(), topics
    reader.subscribe(
        [requests],
        on_assign=lambda *_: _learn(role, written),
        on_revoke=lambda _, gone: waiting.drop(gone),
    )
    while not stopped.is_set():
        role.turned_s = time.monotonic()
        take_requests(reader, waiting, POLL_S if not waiting.requests else 0.0)
        if not waiting.requests:
            waiting.resume()
        if (found := waiting.next(time.monotonic())) is None:
            continue
        place, request = found
        if request is not None:
            result = role.answered(request, time.time())
            if result is None:
                waiting.deferred.append((place, request))
                continue
            key, value = result
            writer.produce(results, value, key)
            writer.flush(WRITTEN_WITHIN_S)
        reader.commit(offsets=[waiting.committed(place)], asynchronous=True)


def _learn(role: ProfilerRole, written: Tail) -> None:
    """Know the results that were written before requests were taken over; unread ones cost a second
    run of their blocks."""
    try:
        role.learn({m.key() or b"": m.value() or b"" for m in written.written(READ_WITHIN_S)})
    except BrokerError as error:
        log.warning("results of other profilers are not read: %s", error)


class CallWatch:
    """How long a call of an operator has run, by regular looks. Seconds in which the process was
    stopped or its host suspended do not count: the call could not return."""

    def __init__(self) -> None:
        self._since, self._ran_s, self._looked_s = 0.0, 0.0, float("-inf")

    def ran_s(self, running_since: float, now_s: float) -> float:
        """Return the seconds that the call since ``running_since`` has run, 0.0 without a call."""
        passed_s = min(now_s - max(self._looked_s, running_since), 2 * LOOK_S)
        self._ran_s = passed_s + (self._ran_s if running_since == self._since else 0.0)
        self._since, self._looked_s = running_since, now_s
        return self._ran_s if running_since else 0.0


def works(running_since: float, loading_since: float, turned_s: float, now_s: float) -> bool:
    """Return whether a profiler does not hang: an operator runs since ``running_since`` (0.0: none;
    ``HANGS_S`` judges that), one loads since ``loading_since``, or its loop has turned."""
    loads = loading_since > 0.0 and now_s - loading_since < LOAD_S
    return running_since > 0.0 or loads or now_s - turned_s < TURNS_S


def _watch(role: ProfilerRole, writer: Producer, results: str, beat: Callable[[], None]) -> None:
    """End the process, with an error as the result, if an operator's call hangs; until then give
    signs of life while the role works."""
    calls = CallWatch()
    while True:
        time.sleep(LOOK_S)
        running_since, loading_since = role.operators.running_since, role.operators.loading_since
        if works(running_since, loading_since, role.turned_s, time.monotonic()):
            beat()
        ran_s = calls.ran_s(running_since, time.monotonic())
        if (found := role.hung(ran_s, time.time())) is not None:
            key, value = found
            writer.produce(results, value, key)
            writer.flush(WRITTEN_WITHIN_S)
            os._exit(1)

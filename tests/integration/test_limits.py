"""Operators that hang, hoard memory or die are contained within limits, in a separate process."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.received_answers import ends, in_time
from benchmarks.rig import Rig, Stuck
from headrace.roles.workers.subprocess_operator import STALLED_S, Isolated
from operators.calls.user_frames import OperatorFailed
from operators.join import MOST_CRASHES
from operators.serving.fanout import reason_of
from operators.timed_batch import TimedBatch
from schemas.enumerations import ReasonCode
from schemas.pipeline import Variant
from schemas.records import ANSWERED, FAILED, REFUSED, Answer
from streams.live.executors import STUCK_S
from tests.integration.rigs import under_load

FOR_TESTS = "tests.integration.operators_for_tests"
OPERATOR = f"{FOR_TESTS}:Brittle"
TROUBLE = {
    b"hang": "echo/brittle took longer than its limit of 0.5 s; its process was started again",
    b"die": "echo/brittle ended its process with code 7; its process was started again",
    b"raise": "echo/brittle raised KeyError: 'told to'",
    b"nonsense": "echo/brittle raised outputs that cannot be handed over",
}
HOARDED = r"echo/brittle used \d+ MB, its limit is 400 MB; its process was started again"
# Inputs that end a worker's process, and its exit code.
DEATHS = {b"die": 7, b"fault": -signal.SIGSEGV, b"killed": -signal.SIGKILL}


def isolated(
    operator: str, batch_s: float = STUCK_S, stalled_s: float = STALLED_S, **limits: float
) -> Isolated:
    """Return a loaded operator with these limits, in a process of its own."""
    variant = Variant(task="echo", name="brittle", operator=operator, **limits)  # type: ignore[arg-type]
    found = Isolated(variant, Path(__file__), batch_s=batch_s, stalled_s=stalled_s)
    found.load("cpu")
    return found


@pytest.fixture(scope="module")
def operator() -> Isolated:
    return isolated(OPERATOR, time_limit_s=0.5, memory_limit_bytes=400_000_000)


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_failure_fails_its_batch_with_a_reason_and_the_next_batch_is_served(
    operator: Isolated, trouble: bytes
) -> None:
    with pytest.raises(OperatorFailed, match=TROUBLE[trouble]):
        operator.predict([b"a", trouble])
    assert operator.predict([b"b", b"c"]) == [b"b", b"c"]


def test_a_process_that_ended_between_two_batches_is_replaced(operator: Isolated) -> None:
    assert operator.predict([b"a"]) == [b"a"]
    assert operator._process is not None
    operator._process.kill()
    operator._process.join()
    assert operator.predict([b"b"]) == [b"b"]


def test_a_new_process_is_told_the_time_that_its_start_has_left() -> None:
    operator = isolated(f"{FOR_TESTS}:Patient", time_limit_s=1.0)
    assert operator._process is not None
    operator._process.kill()
    operator._process.join()
    (left_s,) = operator.predict(TimedBatch([b"a"], [100.0]))
    assert 0.0 < left_s < 100.0


@pytest.fixture(scope="module")
def careless() -> Isolated:
    return isolated(f"{FOR_TESTS}:Careless", time_limit_s=2.0)


def test_a_batch_gets_its_own_outputs_after_an_operator_has_forked(careless: Isolated) -> None:
    careless.predict([b"fork"])
    batches = [[b"%d" % number] for number in range(20)]
    assert [careless.predict(batch) for batch in batches] == batches


def test_an_exception_in_place_of_an_output_fails_its_item_with_its_own_words(
    careless: Isolated,
) -> None:
    good, told = careless.predict([b"a", b"told"])
    assert (good, reason_of(told)) == (b"a", "dust in the lens")


def test_an_operator_that_exits_keeps_its_process(careless: Isolated) -> None:
    assert careless._process is not None
    before = careless._process.pid
    with pytest.raises(OperatorFailed, match=r"raised SystemExit: no licence \(at operators_for"):
        careless.predict([b"exit"])
    assert careless.predict([b"a"]) == [b"a"]
    assert careless._process.pid == before


def test_processes_that_an_operator_started_end_with_its_own(careless: Isolated) -> None:
    (pid,) = careless.predict([b"start"])
    started = os.pidfd_open(pid)
    with pytest.raises(OperatorFailed, match="took longer than its limit"):
        careless.predict([b"hang"])
    ended, _, _ = select.select([started], [], [], 10)
    os.close(started)
    assert ended == [started]


@pytest.mark.thorough
def test_a_process_that_takes_no_batch_is_replaced() -> None:
    operator = isolated(OPERATOR, batch_s=0.5, stalled_s=0.5, memory_limit_bytes=400_000_000)
    assert operator._process is not None
    assert operator._process.pid is not None
    os.kill(operator._process.pid, signal.SIGSTOP)
    with pytest.raises(OperatorFailed, match=r"took longer than its limit of 0\.5 s"):
        operator.predict([bytes(10_000_000)])
    assert operator.predict([b"a"]) == [b"a"]


KILLED = f"""
import os, signal
from pathlib import Path
from headrace.roles.workers.subprocess_operator import Isolated
from schemas.pipeline import Variant

variant = Variant(task="echo", name="slow", operator="{FOR_TESTS}:NeverLoads")
Isolated(variant, Path({__file__!r}))._start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_whose_worker_dies_as_it_starts_ends_too() -> None:
    # The pipe of the output ends with the last of both.
    ended = subprocess.run([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, timeout=200)
    assert ended.returncode == -signal.SIGKILL


@pytest.mark.thorough
def test_memory_beyond_the_limit_ends_the_process() -> None:
    operator = isolated(OPERATOR, memory_limit_bytes=400_000_000)
    with pytest.raises(OperatorFailed, match=HOARDED):
        operator.predict([b"hoard"])
    assert operator.predict([b"b"]) == [b"b"]


def test_without_a_time_limit_a_batch_that_hangs_ends_its_process_only() -> None:
    operator = isolated(OPERATOR, batch_s=0.5, memory_limit_bytes=400_000_000)
    with pytest.raises(OperatorFailed, match=r"took longer than its limit of 0\.5 s"):
        operator.predict([b"hang"])
    assert operator.predict([b"b"]) == [b"b"]


def test_a_load_has_a_limit_of_its_own() -> None:
    variant = Variant(
        task="echo", name="slow", operator=f"{FOR_TESTS}:NeverLoads", time_limit_s=9.0
    )
    with pytest.raises(OperatorFailed, match=r"loading took longer than its limit of 0\.1 s"):
        Isolated(variant, Path(__file__), load_s=0.1).load("cpu")


def test_an_operator_that_cannot_be_loaded_says_why(operator: Isolated) -> None:
    variant = Variant(task="echo", name="brittle", operator=OPERATOR, time_limit_s=1.0)
    with pytest.raises(OperatorFailed, match="no device cuda:7"):
        Isolated(variant, Path(__file__)).load("cuda:7")


def test_the_process_ends_with_its_operator() -> None:
    variant = Variant(task="echo", name="brittle", operator=OPERATOR, time_limit_s=1.0)
    before = {child.pid for child in psutil.Process().children()}
    operator = Isolated(variant, Path(__file__))
    operator.load("cpu")
    started = {child.pid for child in psutil.Process().children()} - before
    del operator
    assert started
    assert started & {child.pid for child in psutil.Process().children()} == set()


@contextmanager
def echoing(
    broker: str, folder: Path, slo: str, variant: Mapping[str, Any], **more: Any
) -> Iterator[Rig]:
    """Run a pipeline of one task whose operator fails as its inputs ask."""
    brittle = {"operator": OPERATOR, "replicas": 1, **variant}
    description = {
        "slo": slo, "input": "raw", "egress_partitions": 1,
        "tasks": {"echo": {"slots": 1, "variants": {"brittle": brittle}}},
        "cluster": {"devices": {"cpu": 1}}, **more,
    }  # fmt: skip
    with closing(Rig(broker, folder, description)) as rig:
        rig.variables["HEADRACE_HOME"] = str(folder)
        rig.up()
        yield rig


@pytest.mark.kafka
def test_a_worker_goes_on_behind_an_operator_that_hangs_hoards_or_dies(
    broker: str, tmp_path: Path
) -> None:
    limited = {"batch": 1, "limits": {"time": "3s", "memory": "400MB"}}
    with echoing(broker, tmp_path, "20s", limited) as rig:
        rig.offer(20)
        rig.pass_time(0.5)
        names = {}
        for payload in (b"hang", b"hoard", b"die"):
            names[payload] = rig.ask(payload)
            rig.pass_time(0.5)
        rig.settle()
        for payload, name in names.items():
            answer = rig.answer_to(name)
            print(f"{payload.decode()}: {answer.outcome}, {answer.reason}")
            assert (answer.outcome, answer.task) == (FAILED, "echo")
        others = [a for a in rig.answers if a.id not in names.values()]
        print(f"beside them: {ends(others)}")
        assert {a.outcome for a in others} == {ANSWERED}
        rig.answers.check_single()


@pytest.fixture(scope="module")
def unlimited(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Run a pipeline whose operator shares its worker's process and can end it."""
    with echoing(broker, tmp_path_factory.mktemp("unlimited"), "60s", {"batch": 4}) as rig:
        yield rig


@pytest.fixture
def crashing(unlimited: Rig) -> Iterator[Rig]:
    yield from under_load(unlimited, 20)


@pytest.mark.kafka
@pytest.mark.parametrize(("payload", "code"), DEATHS.items())
def test_a_query_that_crashes_its_worker_twice_fails_and_the_worker_serves_on(
    crashing: Rig, payload: bytes, code: int
) -> None:
    rig = crashing
    asked_s = time.time()
    killer = rig.ask(payload)
    for _ in range(2):
        with pytest.raises(Stuck, match=f"cpu-0 ended by itself with {code}:"):
            rig.until(lambda: False, "the worker to die")
        rig.start("cpu-0")
    rig.settle()
    answer = rig.answer_to(killer)
    assert (answer.outcome, answer.task) == (FAILED, "echo")
    assert answer.reason == "echo/brittle crashed the process of cpu-0 2 times with it"
    others = [a for a in rig.answers.since(asked_s) if a.id != killer]
    print(f"beside it: {ends(others)}")
    # Without a worker, the plan admits no queries.
    assert {a.outcome for a in others} <= {ANSWERED, REFUSED}
    assert in_time(others[-1])
    rig.answers.check_single()
    assert "cpu-0" in rig.running


def kill_the_hung(rig: Rig) -> None:
    """Kill a hung egress as its supervisor does, and restart it."""
    rig.until(lambda: rig.reports["egress-0"].sent_s < time.time() - 1.0, "a hung egress")
    rig.kill("egress-0")
    rig.start("egress-0")
    rig.until(lambda: rig.reports["egress-0"].sent_s > time.time() - 0.5, "its reports")


def failed_by_combine(answer: Answer) -> bool:
    return (answer.outcome, answer.reason_code) == (FAILED, ReasonCode.COMBINE)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_query_that_makes_egress_hang_fails_after_two_kills(broker: str, tmp_path: Path) -> None:
    with echoing(broker, tmp_path, "20s", {"batch": 4}, combine=f"{FOR_TESTS}:halting") as rig:
        rig.offer(20)
        halting = rig.ask(b"halt")
        for _ in range(MOST_CRASHES):
            kill_the_hung(rig)
        rig.settle()
        assert failed_by_combine(rig.answer_to(halting))
        assert rig.letters == []
        assert {a.outcome for a in rig.answers if a.id != halting} == {ANSWERED}
        rig.answers.check_single()


@pytest.mark.kafka
@pytest.mark.slow
def test_an_overdue_query_that_makes_egress_hang_fails_after_two_kills(
    broker: str, tmp_path: Path
) -> None:
    tasks = {
        "halve": {"slots": 1, "variants": {"v": {"operator": f"{FOR_TESTS}:Halves"}}},
        "echo": {"slots": 1, "variants": {"v": {"operator": OPERATOR, "batch": 1}}},
    }
    tasks["halve"]["children"] = ["echo"]
    more = {"tasks": tasks, "cluster": {"devices": {"cpu": 2}}}
    alone = f"{FOR_TESTS}:halting_alone"
    with echoing(broker, tmp_path, "3s", {}, combine=alone, **more) as rig:
        halting = rig.ask(b"hang")
        rig.pass_time(1.0)
        rig.kill("cpu-1")  # with one of its halves, for which the query waits until it is overdue
        for _ in range(MOST_CRASHES):
            kill_the_hung(rig)
        rig.until(lambda: halting not in rig.waiting, "its answer")
        assert failed_by_combine(rig.answer_to(halting))
        rig.answers.check_single()

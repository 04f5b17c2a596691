"""A two-stage pipeline with fan-out answers queries; every role is a separate process."""

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from benchmarks.received_answers import ends, in_time
from benchmarks.rig import Rig
from benchmarks.squares import right
from headrace.client.formats import read_answer
from headrace.client.topic_clients import Tail
from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER
from schemas.effects import RESULTS
from schemas.records import ANSWERED, DROPPED, FAILED, REFUSED, Answer, Origin
from schemas.trace_context import Headers
from streams.topics import MAX_RECORD_BYTES, physical

pytestmark = pytest.mark.kafka

OPERATORS = "benchmarks.squares"
PIPELINE = {
    "slo": "4s",  # long, because the machine may be busy and these tests do not measure latency
    "input": "raw",
    "results": "json",
    "combine": f"{OPERATORS}:total",
    "grace": "500ms",
    "egress_partitions": 2,
    "tasks": {
        "split": {
            "slots": 4,
            "children": ["square"],
            # Batches of one, so that an input that makes its batch fail fails no other input.
            "variants": {"plain": {"operator": f"{OPERATORS}:Split", "batch": 1, "replicas": 1}},
        },
        "square": {
            "slots": 4,
            "variants": {
                "quick": {"operator": f"{OPERATORS}:Square", "batch": 8, "replicas": 2},
                "slow": {
                    "operator": f"{OPERATORS}:Square",
                    "arguments": {"ms": 4.0},
                    "batch": 8,
                },
            },
        },
    },
    "policy": "quick",
    "policies": {
        "quick": {"kind": "static", "replicas": {"split/plain": 1, "square/quick": 2}},
        "slow": {"kind": "static", "replicas": {"split/plain": 1, "square/slow": 2}},
    },
    "cluster": {"devices": {"cpu": 3}, "ingress": 1, "egress": 1},
}


@pytest.fixture(scope="module")
def running(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig(broker, tmp_path_factory.mktemp("answers"), PIPELINE)
    try:
        print(f"up after {rig.up():.1f} s")
        rig.ask(b"1")
        rig.settle()
        yield rig
    finally:
        rig.close()


@pytest.fixture
def rig(running: Rig) -> Rig:
    """Yield the pipeline with no queries in flight."""
    running.offer(0)
    running.until(running.serves, "every role to serve")
    return running


def wrong_results(rig: Rig, answers: list[Answer]) -> list[str]:
    return [
        a.id
        for a in answers
        if a.outcome == ANSWERED and a.result != right(int(rig.asked[a.id].payload))
    ]


def test_every_query_is_answered_once_with_its_own_result(rig: Rig) -> None:
    began_s = time.time()
    rig.offer(50)
    rig.pass_time(4)
    rig.settle()
    answers = rig.answers.since(began_s)
    took_ms = sorted((a.answered_s - a.created_s) * 1e3 for a in answers)
    print(
        f"{len(answers)} queries at 50/s: {ends(answers)}; p50 {took_ms[len(took_ms) // 2]:.1f} ms"
    )
    assert len(answers) > 150
    assert all(in_time(answer) for answer in answers)
    assert wrong_results(rig, answers) == []
    rig.answers.check_single()
    assert {a.origin for a in answers} == {rig.asked[a.id].origin for a in answers}


def test_the_answer_contains_its_path_and_the_epoch_of_its_plan(rig: Rig) -> None:
    answer = rig.answer_to(rig.ask(b"5"))
    assert answer.result == 25 + 36 + 49
    assert answer.epoch == rig.plan.epoch
    leases = {lease.worker: (lease.task, lease.variant) for lease in rig.plan.leases}
    for path in answer.paths:
        assert [(hop.task, hop.variant) for hop in path] == [
            ("split", "plain"),
            ("square", "quick"),
        ]
        assert [(hop.task, hop.variant) for hop in path] == [leases[hop.worker] for hop in path]
        times = [t for hop in path for t in (hop.received_s, hop.started_s, hop.finished_s)]
        assert [answer.created_s, *times, answer.answered_s] == sorted(
            [answer.created_s, *times, answer.answered_s]
        )
    assert len(answer.paths) == len(answer.ends) == 3


def test_an_input_without_items_is_answered_with_nothing(rig: Rig) -> None:
    answer = rig.answer_to(rig.ask(b"none"))
    assert (answer.outcome, answer.result, len(answer.paths)) == (ANSWERED, 0, 1)


def test_a_deadline_in_the_header_is_the_querys_own(rig: Rig) -> None:
    now = time.time()
    long = rig.answer_to(rig.ask(b"6", deadline_s=now + 30))
    past = rig.answer_to(rig.ask(b"7", deadline_s=now - 1))
    assert (long.outcome, long.deadline_s) == (ANSWERED, pytest.approx(now + 30, abs=1e-3))
    assert (past.outcome, past.deadline_s) == (DROPPED, pytest.approx(now - 1, abs=1e-3))
    assert "after its deadline" in past.reason


def test_a_far_deadline_is_capped_at_ten_slos(rig: Rig) -> None:
    asked = rig.answer_to(rig.ask(b"6", deadline_s=time.time() + 3600))
    assert asked.outcome == ANSWERED
    assert asked.deadline_s - asked.created_s == pytest.approx(10 * 4.0, abs=1e-3)


def test_unreadable_input_is_refused_once_and_kept_as_a_dead_letter(rig: Rig) -> None:
    known = len(rig.letters)
    bad = [
        (rig.put(payload, headers), reason)
        for payload, headers, reason in (
            (b"", [], "the value is empty"),
            (None, [], "the value is empty"),
            (b"1", [(DEADLINE_HEADER, b"soon")], "milliseconds since the epoch"),
            (b"1", [(DEADLINE_HEADER, b"1764000000")], "2000 and 2200"),
            (b"1", [(ID_HEADER, b"\xff\xfe")], "not UTF-8"),
            (b"1", [(ID_HEADER, b"x" * 10_000)], "at most 256"),
        )
    ]
    rig.until(lambda: all(asked.origin for asked, _ in bad), "the broker's word")
    rig.until(lambda: len(rig.letters) == known + len(bad), "the dead letters")
    rig.until(lambda: {a.origin for a, _ in bad} <= {a.origin for a in rig.answers}, "the answers")
    letters = {Origin(le.partition, le.offset): le for le in rig.letters[known:]}
    for asked, reason in bad:
        assert asked.origin is not None
        (answer,) = [a for a in rig.answers if a.origin == asked.origin]
        assert (answer.outcome, answer.task) == (REFUSED, "ingress")
        assert reason in answer.reason
        assert letters[asked.origin].reason == answer.reason
    assert rig.answer_to(rig.ask(b"8")).result == right(8)


def test_the_result_of_a_query_has_its_trace_context_however_it_ends(rig: Rig) -> None:
    context = [
        ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("tracestate", b"vendor=1"),
    ]
    past = (DEADLINE_HEADER, b"%d" % ((time.time() - 1) * 1e3))
    sent: list[tuple[bytes, Headers, str]] = [
        (b"5", context, ANSWERED), (b"raise", context, FAILED), (b"5", [*context, past], DROPPED),
        (b"", context, REFUSED), (b"5", [("traceparent", b"00-malformed"), context[1]], ANSWERED),
    ]  # fmt: skip
    found: dict[Origin, tuple[str, object]] = {}

    def read() -> bool:
        for message in tail.messages(0.1):
            answer = read_answer(message.value() or b"")
            found[answer.origin] = answer.outcome, message.headers()
        return all(each.origin in found for each in asked)

    with closing(Tail(rig.kafka, physical(rig.name, RESULTS))) as tail:
        asked = [rig.put(payload, headers) for payload, headers, _ in sent]
        rig.until(read, "the results")
    results = [found[each.origin] for each in asked if each.origin is not None]
    assert [outcome for outcome, _ in results] == [outcome for *_, outcome in sent]
    assert [headers for _, headers in results] == [context] * 4 + [None]


def test_a_value_too_large_for_a_record_ends_only_its_own_query(rig: Rig) -> None:
    began_s = time.time()
    rig.offer(40)
    # Ingress adds fields to the input, so an input that just fits the topic no longer fits.
    bad = {
        rig.ask(bytes(MAX_RECORD_BYTES - 500)): (REFUSED, "ingress"),
        rig.ask(b"oversized item"): (FAILED, "split"),
        rig.ask(b"long array"): (FAILED, "egress"),
    }
    part = rig.ask(b"oversized output")
    rig.pass_time(1)
    rig.settle()
    for name, (outcome, task) in bad.items():
        answer = rig.answer_to(name)
        print(f"{answer.outcome} by {answer.task}: {answer.reason}")
        assert (answer.outcome, answer.task, answer.result) == (outcome, task, None)
    answer = rig.answer_to(part)
    assert (answer.outcome, answer.incomplete, answer.result) == (ANSWERED, True, 1 + 9)
    others = [a for a in rig.answers.since(began_s) if a.id not in bad and a.id != part]
    print(f"beside what fits no record: {ends(others)}")
    assert wrong_results(rig, others) == []
    assert all(a.outcome == ANSWERED for a in others)


def test_an_operator_that_fails_for_some_fails_those_only(rig: Rig) -> None:
    began_s = time.time()
    bad = {b"raise": "RuntimeError: told to raise", b"short": "0 outputs for 1 inputs",
           b"nonsense": "object"}  # fmt: skip
    rig.offer(40)
    names = {}
    for _ in range(3):
        for payload in bad:
            names[rig.ask(payload)] = payload
            rig.pass_time(0.1)
    in_part = rig.ask(b"word")
    rig.settle()
    for name, payload in names.items():
        answer = rig.answer_to(name)
        assert (answer.outcome, answer.task, answer.result) == (FAILED, "split", None)
        assert bad[payload] in answer.reason
    part = rig.answer_to(in_part)
    assert (part.outcome, part.incomplete, part.result) == (ANSWERED, True, 1 + 9)
    assert "'word' is no number" in part.reason
    others = [a for a in rig.answers.since(began_s) if a.id not in names and a.id != in_part]
    print(f"beside {len(names)} bad inputs: {ends(others)}")
    assert all(in_time(answer) for answer in others)
    assert wrong_results(rig, others) == []


def test_a_command_changes_the_variant_and_loses_no_query(rig: Rig) -> None:
    began_s = time.time()
    rig.offer(50)
    rig.pass_time(1)
    asked_s = time.time()
    result = rig.command("apply-policy", policy="slow")
    assert result.ok, result.message
    rig.until(
        lambda: rig.answers.since(asked_s) and {h.variant for p in rig.answers[-1].paths for h in p}
        == {"plain", "slow"},
        "an answer of the other variant",
    )  # fmt: skip
    rig.until(rig.serves, "the new plan to settle")
    told_s, served_s = result.finished_s - asked_s, time.time() - asked_s
    print(f"policy by command: in force after {told_s:.3f} s, settled after {served_s:.2f} s")
    rig.pass_time(1)
    back = rig.command("rollback", epoch=str(result.epoch - 1))
    assert back.ok, back.message
    rig.pass_time(1)
    rig.settle()
    answers = rig.answers.since(began_s)
    print(f"across two changes of variant: {ends(answers)}")
    assert all(in_time(answer) for answer in answers)
    assert wrong_results(rig, answers) == []
    rig.answers.check_single()


def test_draining_a_worker_under_load_loses_and_duplicates_nothing(rig: Rig) -> None:
    before = rig.reports["egress-0"].counts["duplicates"]
    began_s = time.time()
    squares = [lease.worker for lease in rig.plan.leases if lease.task == "square"]
    rig.offer(50)
    rig.pass_time(1)
    assert rig.command("drain", target=squares[0]).ok
    took_s = rig.until(lambda: squares[0] not in {le.worker for le in rig.plan.leases}, "the drain")
    code = rig.stop(squares[0])
    rig.pass_time(2)
    rig.start(squares[0])
    assert rig.command("restore", target=squares[0]).ok
    rig.until(rig.serves, "the worker to be back")
    rig.pass_time(1)
    rig.settle()
    answers = rig.answers.since(began_s)
    duplicates = rig.reports["egress-0"].counts["duplicates"] - before
    print(
        f"drained in {took_s:.2f} s, ended with {code}: {ends(answers)}, {duplicates:g} duplicates"
    )
    assert code == 0
    assert duplicates == 0
    assert all(in_time(answer) for answer in answers)
    assert wrong_results(rig, answers) == []
    rig.answers.check_single()

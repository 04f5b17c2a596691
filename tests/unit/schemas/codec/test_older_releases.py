"""Records of release 5 and before: enumerations are inferred from released sentences."""

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest
from msgspec import structs

from schemas.codec.json_form import answer_from_json, answer_to_json
from schemas.codec.schema_store import as_of
from schemas.codec.single_object import CodecError, decode, encode
from schemas.enumerations import NodeState, PlanCause, ReasonCode
from schemas.records import Answer, End, Item, Notice, Plan, Report, Settings, Work
from tests.builders import a_work

ORIGIN = {"partition": 0, "offset": 1}
RELEASED = [
    ("dropped", "read", "read/forest would end 12 ms after the deadline", ReasonCode.PAST_SAVING),
    ("dropped", "read", "a/b would be 12 ms over the budget of its task", ReasonCode.OVER_BUDGET),
    (
        "dropped",
        "locate",
        "locate/net would be done 12 ms too late for what is behind it",
        ReasonCode.NO_WAY_ON,
    ),
    (
        "dropped",
        "locate",
        "locate/net took 12 ms more than its budget, and no worker of 'read' with room can make up "
        "for it; 20 ms were left",
        ReasonCode.NO_WAY_ON,
    ),
    ("dropped", "ingress", "read 500 ms after its deadline", ReasonCode.READ_LATE),
    ("dropped", "", "not complete 1250 ms after it was made", ReasonCode.UNFINISHED),
    ("dropped", "read", "no worker serves task 'read'", ReasonCode.NO_WORKER),
    ("dropped", "read", "sunspots", ReasonCode.OTHER),
    ("failed", "read", "read/forest raised ValueError: would end", ReasonCode.OPERATOR),
    ("failed", "egress", "combine raised KeyError: 'x'", ReasonCode.COMBINE),
    ("answered", "read", "", ReasonCode.NONE),
]
REFUSED = [
    ("over capacity", ReasonCode.OVER_CAPACITY),
    ("no worker serves task 'locate'", ReasonCode.NO_WORKER),
    ("the pipeline is paused; `headrace resume` lets queries in again", ReasonCode.PAUSED),
    ("the value is empty; it must be the payload itself", ReasonCode.BAD_INPUT),
]


def written_by_release_5(record: str, row: dict[str, Any]) -> bytes:
    schema = as_of(5)[record]
    body = BytesIO()
    body.write(schema.prefix)
    fastavro.schemaless_writer(body, schema.parsed, row)
    return body.getvalue()


def an_answer(**fields: Any) -> Answer:
    row = {"id": "q", "origin": ORIGIN, "created_s": 0.0, "deadline_s": 1.0, "answered_s": 0.5}
    answer = decode(written_by_release_5("Answer", row | fields))
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(("outcome", "task", "reason", "code"), RELEASED)
def test_how_a_branch_ended(outcome: str, task: str, reason: str, code: ReasonCode) -> None:
    end = {"outcome": outcome, "task": task, "reason": reason}
    row = {
        "query_id": "q", "origin": ORIGIN, "task": "", "created_s": 0.0, "deadline_s": 1.0,
        "epoch": 1, "items": [{"end": end}, {}],
    }  # fmt: skip
    work = decode(written_by_release_5("Work", row))
    assert isinstance(work, Work)
    assert [item.end for item in work.items] == [End(outcome, task, reason, code), None]
    answer = an_answer(outcome=outcome, task=task, reason=reason, ends=[end])
    assert answer.reason_code is code
    assert answer.ends == (End(outcome, task, reason, code),)


def test_an_incomplete_answer_is_by_how_its_missing_branch_ended() -> None:
    failed = {"outcome": "failed", "task": "read", "reason": "it would end badly"}
    fine = {"outcome": "answered", "task": "read", "reason": ""}
    about = {"outcome": "answered", "incomplete": True, "task": "read"}
    found = an_answer(**about, reason="it would end badly", ends=[fine, failed])
    assert found.reason_code is ReasonCode.OPERATOR
    found = an_answer(**about, reason="not complete 20 ms after it was made", ends=[fine])
    assert found.reason_code is ReasonCode.UNFINISHED


@pytest.mark.parametrize(("refused", "code"), [*REFUSED, ("", ReasonCode.NONE)])
def test_why_a_query_was_refused(refused: str, code: ReasonCode) -> None:
    noticed = {"query_id": "q", "offset": 1, "created_s": 0.0, "deadline_s": 1.0}
    row = {"partition": 0, "upto": 2, "queries": [{**noticed, "refused": refused}]}
    notice = decode(written_by_release_5("Notice", row))
    assert isinstance(notice, Notice)
    assert notice.queries[0].reason_code is code


@pytest.mark.parametrize(("reason", "code"), REFUSED)
def test_a_refusal(reason: str, code: ReasonCode) -> None:
    assert an_answer(outcome="refused", task="ingress", reason=reason).reason_code is code


@pytest.mark.parametrize(
    ("reason", "causes"),
    [
        ("", ()),
        ("first plan", (PlanCause.FIRST,)),
        ("command apply-policy (c-1); planned anew", (PlanCause.COMMAND, PlanCause.INTERVAL)),
        ("worker cpu-1 serves read; worker a is drained",
         (PlanCause.WORKER_SERVES, PlanCause.WORKER_DRAINED)),
        ("worker cpu-1 no longer serves read", (PlanCause.WORKER_UNLOADED,)),
        ("worker a is new; worker b is new; worker c is leaving; worker d has restarted",
         (PlanCause.WORKER_NEW, PlanCause.WORKER_LEAVING, PlanCause.WORKER_RESTARTED)),
        ("lost a, b; slots handed on", (PlanCause.WORKER_LOST, PlanCause.HANDOVER)),
        ("demand jumped to 80 from the 40 queries/s that were planned for",
         (PlanCause.DEMAND_JUMPED,)),
        ("demand fell to 8 from the 40 queries/s that were planned for", (PlanCause.DEMAND_FELL,)),
        ("batches on cpu take 1.5 times as long as profiled", (PlanCause.SLOWDOWN,)),
        ("a/b makes 2 items for c each, other than planned for", (PlanCause.FANOUT,)),
        ("more workers may change", (PlanCause.STAGED,)),
        ("routes for what arrives now", (PlanCause.ROUTES,)),
        ("planned anew; earlier: no solver", (PlanCause.INTERVAL, PlanCause.EARLIER_FAILURE)),
        ("sunspots", (PlanCause.OTHER,)),
    ],
)  # fmt: skip
def test_what_led_to_a_plan(reason: str, causes: tuple[PlanCause, ...]) -> None:
    row = {
        "pipeline": "p", "epoch": 1, "issued_s": 0.0, "reason": reason,
        "settings": {"policy": "loki", "slo_s": 1.0},
    }  # fmt: skip
    plan = decode(written_by_release_5("Plan", row))
    assert isinstance(plan, Plan)
    assert plan.causes == causes


@pytest.mark.parametrize(
    ("written", "state", "error"),
    [
        ("ready", NodeState.READY, ""),
        ("failed: read/vit cannot be loaded: no: torch", NodeState.FAILED,
         "read/vit cannot be loaded: no: torch"),
        ("dreaming", NodeState.OTHER, ""),
    ],
)  # fmt: skip
def test_what_a_node_does(written: str, state: NodeState, error: str) -> None:
    row = {
        "node": "w", "role": "worker", "pipeline": "p", "epoch": 1, "incarnation": 0.0,
        "sent_s": 1.0, "state": written,
    }  # fmt: skip
    report = decode(written_by_release_5("Report", row))
    assert isinstance(report, Report)
    assert (report.state, report.error) == (state, error)


def test_what_this_release_writes_is_taken_as_it_is() -> None:
    end = End("dropped", "read", "read/a would end 2 ms after the deadline", ReasonCode.OTHER)
    work = a_work(0, Item(end=end), task="")
    assert decode(encode(work)) == work
    plan = Plan(
        pipeline="p", epoch=1, issued_s=0.0, reason="first plan",
        settings=Settings(policy="loki", slo_s=1.0), causes=(),
    )  # fmt: skip
    assert decode(encode(plan)) == plan


def test_an_answer_in_json_of_release_5_has_its_codes_inferred_too() -> None:
    failed = End("failed", "read", "read/v raised OSError: x", ReasonCode.OPERATOR)
    answer = an_answer(outcome="failed", task="read", reason=failed.reason)
    answer = structs.replace(answer, ends=(failed,))
    today = json.loads(answer_to_json(answer))
    assert answer_from_json(answer_to_json(answer)) == answer
    for row in (today, *today["ends"]):
        del row["reason_code"]
    assert answer_from_json(json.dumps(today).encode()) == answer


def test_a_code_of_a_later_release_is_other_in_json_as_well() -> None:
    row = json.loads(answer_to_json(an_answer(outcome="failed", reason="x")))
    later = json.dumps(row | {"reason_code": "sunspots"}).encode()
    assert answer_from_json(later).reason_code is ReasonCode.OTHER


@pytest.mark.parametrize("value", [b"", b"1", b"{}", b'{"ends": 3}', b'{"ends": [3]}', b"[" * 9999])
def test_what_is_no_answer_in_json_is_refused(value: bytes) -> None:
    with pytest.raises(CodecError, match="no answer in JSON"):
        answer_from_json(value)

"""The examples in docs/reference/records.md match the output of the code."""

import json
import re
from pathlib import Path

import pytest

from schemas.codec.json_form import command_from_json, to_json
from schemas.codec.path_tree import folded
from schemas.codec.raw import DEADLINE_HEADER, ID_HEADER, MAX_ID_LENGTH, SLO_CLASS_HEADER
from schemas.codec.single_object import encode
from schemas.codec.values import DTYPES, MAX_DEPTH
from schemas.enumerations import NodeState, PlanCause, ReasonCode, SessionState
from schemas.records import (
    AccuracyRow,
    Answer,
    Command,
    CommandResult,
    Completion,
    DeadLetter,
    End,
    Hop,
    Item,
    Label,
    Lease,
    MeasuredAccuracy,
    Notice,
    Noticed,
    Origin,
    Plan,
    ProfileRequest,
    ProfileResult,
    Query,
    Report,
    Route,
    Selection,
    SelectionTable,
    Session,
    SessionChoice,
    Settings,
    SlotState,
    Trace,
    Work,
)
from schemas.release import READS, RELEASE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "records.md").read_text()
TIME = 1_767_225_600.0  # 2026-01-01T00:00:00Z

LOCATED = Hop(
    task="locate", variant="components", worker="w-1", epoch=12, received_s=TIME + 0.002,
    started_s=TIME + 0.003, finished_s=TIME + 0.008, batch=4, released="idle",
)  # fmt: skip
READ = Hop(
    task="read", variant="forest", worker="w-3", epoch=12, received_s=TIME + 0.01,
    started_s=TIME + 0.012, finished_s=TIME + 0.015, batch=16, released="full",
)  # fmt: skip
EXAMPLES = [
    Query(payload="one envelope", id="letter-17", deadline_s=TIME + 0.3),
    Work(
        query_id="letter-17", origin=Origin(0, 4711), task="read", created_s=TIME,
        deadline_s=TIME + 0.3, epoch=12,
        items=(
            Item(branch=(0, 0), credit=5 * 10**17, value="a crop", path=(LOCATED,)),
            Item(branch=(0, 1), credit=5 * 10**17, value="another", path=(LOCATED,)),
        ),
    ),
    Completion(
        query_id="letter-17", origin=Origin(0, 4711), slot=2, worker="w-1", type="g4dn.xlarge",
        setting="read/forest", size=40, queued_s=0.001, run_s=0.012, outcome="answered",
    ),
    Notice(
        partition=0, upto=4712,
        queries=(
            Noticed(
                query_id="letter-17", offset=4711, created_s=TIME, deadline_s=TIME + 0.3,
                trace=Trace("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            ),
        ),
    ),
    folded(Answer(
        id="letter-17", origin=Origin(0, 4711), outcome="answered", result="75001",
        created_s=TIME, deadline_s=TIME + 0.3, answered_s=TIME + 0.02, epoch=12,
        expected_accuracy=0.96, paths=((LOCATED, READ),) * 5, ends=(End("answered", "read"),) * 5,
    )),
    DeadLetter(
        topic="postcode.queries", partition=0, offset=4713,
        reason="the value is empty; it must be the payload itself", value=b"",
        headers=(("headrace-id", b"letter-18"),), node="ingress-0", at_s=TIME + 0.5,
    ),
    Report(
        node="w-3", role="worker", pipeline="postcode", epoch=12, incarnation=TIME - 60,
        sent_s=TIME + 0.2, state=NodeState.READY, device="cpu", task="read", variant="forest",
        slots=(SlotState("read", 2, 1907, 3),),
        counts={
            READS: float(RELEASE), "arrived/read/forest": 1910.0, "finished/read/forest": 1907.0,
        },
        file="41c2fdd510e8",
    ),
    Plan(
        pipeline="postcode", epoch=12, issued_s=TIME - 5, reason="policy fast applied",
        settings=Settings(policy="fast", slo_s=0.3, filed_policy="fast", filed_slo_s=0.3),
        leases=(
            Lease(
                worker="w-3", task="read", variant="forest", batch=64, slots=(2,), open_slot=2
            ),
        ),
        routes=(Route("read", 2, 1.0),), demand_qps=40.0, capacity_qps=120.0,
        expected_accuracy=0.96, causes=(PlanCause.COMMAND,), release=RELEASE,
    ),
    Selection(
        pipeline="postcode", task="read", policy="ramsis", issued_s=TIME - 5, slo_s=0.1, workers=3,
        variants=("forest", "cnn"), levels_s=(0.0, 0.05, 0.1),
        tables=(
            SelectionTable(
                qps=200.0, rows=((0, 0, 1, 1, 1, 1), (0, 0, 2, 2, 1, 2), (0, 0, 3)),
                expected_accuracy=0.97, expected_violation=0.001, run=2,
            ),
        ),
    ),
    ProfileRequest(
        search="cam-17", pipeline="postcode-planned", space="b1946ac92492d234",
        options={"scan.scale": "0.5", "read.variant": "cnn"}, sample_set="workload@7", first=20,
        upto=22, step=3, expires_s=TIME + 60,
    ),
    ProfileResult(
        pipeline="postcode-planned", space="b1946ac92492d234",
        options={"scan.scale": "0.5", "read.variant": "cnn"}, sample_set="workload@7", first=20,
        scores=(0.8, 1.0), seconds={"scan": 0.004, "read": 0.006},
        bytes={"scan": 2600.0, "read": 80.0}, cached={"scan": 2, "read": 0}, input_bytes=10800.0,
        spent_s=0.006, device="cpu", profiler="profiler-0", finished_s=TIME + 0.4,
        search="cam-17@1767225598.250",
    ),
    Label(id="letter-17", truth="75001"),
    MeasuredAccuracy(
        pipeline="postcode", at_s=TIME + 3,
        rows=(
            AccuracyRow(
                path="locate/components > read/forest", slo_class="", hour_s=TIME, queries=10,
                right=8.0, of=10.0, right_right=8.0, right_of=8.0, of_of=10.0, accuracy=0.8,
                low=0.4902, high=0.9433,
            ),
        ),
        counts={"labels": 11, "scored": 10, "repeated": 1}, answers_upto={"0": 4712},
        labels_upto={"0": 11},
    ),
    Command(
        id="c-1", pipeline="postcode", action="apply-policy", arguments={"policy": "fast"},
        issued_s=TIME,
    ),
    CommandResult(
        id="c-1", pipeline="postcode", action="apply-policy", ok=True,
        message="policy 'fast' is in force", epoch=12, finished_s=TIME + 0.1,
    ),
]  # fmt: skip
EXAMPLES.append(
    Session(
        id="cam-17", pipeline="postcode-planned", state=SessionState.SERVING, slo_s=0.2,
        accuracy=0.9, usd_per_h=0.2, chosen=0, number=1, opened_s=TIME, changed_s=TIME + 0.6,
        plans=(
            SessionChoice(
                settings={"scan": "scan/scan@scale=0.5", "read": "read/cnn@votes=1"},
                tiers={"scan": "handheld", "read": "cloud"}, quarters={"scan": 0, "read": 2},
                usd_per_h=0.1,
            ),
        ),
    )
)  # fmt: skip
EXAMPLE_OF = {type(record).__name__: record for record in EXAMPLES}


def section(name: str) -> str:
    """Return the part of the page under a record's heading."""
    found = re.search(rf"^##+ {name}\n(.*?)(?=^##|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, f"docs/reference/records.md lacks the heading '## {name}'"
    return found[1]


def test_every_member_of_an_enum_stands_in_the_page() -> None:
    for kind in (ReasonCode, PlanCause, SessionState):
        listed = re.findall(r"^\| `(\w+)` \| .{3,} \|$", section(kind.__name__), re.M)
        assert sorted(listed) == sorted(kind), kind.__name__


@pytest.mark.parametrize("name", sorted(EXAMPLE_OF))
def test_the_example_of_a_record_is_what_the_code_produces(name: str) -> None:
    block = re.search(r"```json\n(.*?)```", section(name), re.DOTALL)
    assert block, f"docs/reference/records.md lacks a json example under {name}"
    produced = to_json(EXAMPLE_OF[name])
    assert json.loads(block[1]) == json.loads(produced), produced
    encode(EXAMPLE_OF[name])


def test_every_record_on_the_wire_has_an_example() -> None:
    files = {path.stem for path in (ROOT / "schemas" / "avro").glob("*.avsc")}
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in EXAMPLE_OF}
    assert names == files


def test_a_typed_command_is_parsed_as_documented() -> None:
    block = re.search(r"```json\n(.*?)```", section("Typing a command"), re.DOTALL)
    assert block
    assert command_from_json(block[1].encode()) == Command(
        id="c-2", pipeline="", action="set-demand", arguments={"qps": "250"}
    )


def test_names_and_limits_stand_in_the_page() -> None:
    for name in (ID_HEADER, DEADLINE_HEADER, SLO_CLASS_HEADER, *DTYPES):
        assert f"`{name}`" in PAGE, name
    assert f"{MAX_ID_LENGTH} characters" in PAGE
    assert f"{MAX_DEPTH} levels" in PAGE

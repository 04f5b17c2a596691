"""`headrace schedule FILE --sessions`: plans for listed sessions over a recording."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.policies.compass.packing import gpus
from headrace.cli.main import run
from headrace.planning.sessions_file import devices_of
from schemas.records import SessionChoice
from tests.session_world import a_space
from tests.unit.control.policies.compass.test_packing import sizes
from tests.unit.headrace.planning.test_session_search import files

SESSIONS = """\
fast: {slo: 150ms, accuracy: 0.85, count: 3}
heavy: {slo: 150ms, accuracy: 0.85, weight: 5}
never: {slo: 2ms}
"""


def scheduled(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, *more: str, code: int = 0
) -> Any:
    (folder / "sessions.yaml").write_text(text)
    words = ["schedule", *files(folder), "--sessions", str(folder / "sessions.yaml"), *more]
    assert run([*words, "--json"]) == code
    shown = capsys.readouterr()
    return json.loads(shown.out) if code == 0 else shown.err


def test_every_session_gets_a_plan_that_meets_its_objectives_or_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = scheduled(tmp_path, capsys, SESSIONS)
    assert (found["sessions"], found["served"], found["weight"]) == (5, 4, 8.0)
    assert [each["session"] for each in found["assignments"]] == [
        "fast-1", "fast-2", "fast-3", "heavy",
    ]  # fmt: skip
    for each in found["assignments"]:
        assert each["accuracy"] >= 0.85
        assert each["latency_ms"] <= 150
        assert [item["task"] for item in each["items"]] == ["scan", "read"]
        assert sum(item["share"] for item in each["items"]) <= 2
    (refused,) = found["refused"]
    assert refused["session"] == "never"
    assert "(2 ms wanted)" in refused["why"]


def test_every_item_has_a_device_that_holds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = scheduled(tmp_path, capsys, SESSIONS)
    shares: dict[str, float] = {}
    owners: dict[str, set[str]] = {}
    for each in found["assignments"]:
        for item in each["items"]:
            assert item["device"].rpartition("-")[0] == item["tier"]
            shares[item["device"]] = shares.get(item["device"], 0.0) + item["share"]
            owners.setdefault(item["device"], set()).add(each["session"])
    assert max(shares.values()) <= 1
    used = {each["tier"]: each["used"] for each in found["tiers"]}
    for tier in ("depot", "cloud"):
        assert sum(device.startswith(tier) for device in shares) == used[tier]
    assert all(len(owners[d]) == 1 for d in owners if d.startswith("handheld"))


choices = st.builds(
    lambda tier, quarters, setting: SessionChoice(
        settings={"scan": "scan", "read": setting},
        tiers={"scan": tier, "read": "cloud"},
        quarters={"scan": 0 if tier == "handheld" else quarters, "read": quarters},
    ),
    st.sampled_from(["handheld", "depot", "cloud"]),
    st.integers(0, 4),
    st.sampled_from(["read/v", "read/w"]),
)


@given(st.lists(choices, max_size=20), st.booleans())
def test_devices_are_the_fewest_and_none_is_overfull(
    plans: list[SessionChoice], batched: bool
) -> None:
    space = a_space()
    stages = tuple(replace(s, batched=batched and s.name == "read") for s in space.space.stages)
    space = replace(space, space=replace(space.space, stages=stages))
    assigned = {f"s{number}": plan for number, plan in enumerate(plans)}
    devices = devices_of(assigned, space)
    used: dict[str, int] = {}
    pools: dict[str, set[str]] = {}  # seats of a batch are those of one setting
    wanted: dict[tuple[str, str], list[int]] = {}
    for session, plan in assigned.items():
        for task, tier in plan.tiers.items():
            if quarters := plan.quarters[task]:
                device, pool = devices[session, task], space.pool(task, plan.settings[task])
                used[device] = used.get(device, 0) + quarters
                pools.setdefault(device, set()).add(pool)
                wanted.setdefault((tier, pool), []).append(quarters)
    assert len(used) == sum(gpus(sizes(each)) for each in wanted.values())
    assert max(used.values(), default=0) <= 4
    assert all(len(each) == 1 for each in pools.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "lists no session"),
        ("a: {slo: quick}", "slo of 'a'"),
        ("a: {colour: red}", "colour"),
        ("a: {count: 0}", "write 1 or more"),
        ("a: {slo: 1s}\na: {slo: 2s}", ":2: a is here a second time (first on line 1)"),
        ("a: {count: 2}\na-2: {}", "2 sessions are called 'a-2'; rename them"),
        ("a: {accuracy: 90}", "'a' has the accuracy 90; write a number from 0 to 1"),
        ("a: {cost: -1}", "'a' has the cost -1; write $ an hour, 0 or more"),
        ("a: {weight: .nan}", "'a' has the weight nan; write 0 or more"),
        ("a: {qps: .inf}", "'a' has the qps inf; write 0 or more"),
    ],
)
def test_a_file_that_lists_no_sessions_is_refused_with_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    assert said in scheduled(tmp_path, capsys, text, code=2)


def test_a_file_or_an_instance_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule"]) == 2
    assert "either FILE with --sessions and --recorded, or --instance" in capsys.readouterr().err

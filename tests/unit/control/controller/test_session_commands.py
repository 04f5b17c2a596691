"""Plans made by hand: any text gives a plan or a sentence."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.controller.commands import CommandError
from control.controller.session_commands import hand_made
from control.problem.session_space import SessionSpace
from tests.session_world import EVERY_LINK, a_space

PLAN: dict[str, Any] = {
    "stages": [["scan", "handheld"], ["read", "cloud"]],
    "config": {"scan.scale": 0.5, "read.variant": "w", "read.votes": 3},
    "shares": {"read": 0.25},
}
SPACE = a_space()

values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3)
    | st.integers() | st.sampled_from([10**400, "handheld", "cloud", "scan", "read"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["scan", "read", "scan.scale"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def refused(plan: str, space: SessionSpace = SPACE) -> str:
    """Return why a plan is refused, "" if it is not."""
    try:
        hand_made(plan, space)
    except CommandError as error:
        return str(error)
    return ""


def test_a_plan_names_tiers_options_and_shares() -> None:
    choice = hand_made(json.dumps(PLAN), SPACE)
    assert choice.tiers == {"scan": "handheld", "read": "cloud"}
    assert choice.quarters == {"scan": 0, "read": 1}


@given(
    st.integers(0, SPACE.space.configuration_count - 1),
    st.integers(0, SPACE.space.placement_count - 1),
)
def test_every_plan_of_the_space_can_be_given(configuration: int, placement: int) -> None:
    space, tiers = replace(SPACE, links=EVERY_LINK), SPACE.space.placed(placement)
    plan = {"stages": list(tiers.items()), "config": SPACE.space.named(configuration)}
    choice = hand_made(json.dumps(plan), space)
    assert choice.tiers == tiers
    assert choice.settings == {task: SPACE.setting(task, configuration) for task in tiers}


@pytest.mark.parametrize(
    ("scan", "read", "missing"),
    [
        ("depot", "depot", "handheld>depot"),  # where the inputs are
        ("handheld", "depot", "handheld>depot"),
        ("cloud", "depot", "cloud>depot"),
        ("handheld", "cloud", ""),
        ("cloud", "cloud", ""),
    ],
)
def test_a_plan_over_a_link_that_the_file_lacks_is_refused(
    scan: str, read: str, missing: str
) -> None:
    """An emulated one took no time, and the search took such a plan for unreachable."""
    found = refused(json.dumps({**PLAN, "stages": [["scan", scan], ["read", read]]}))
    said = (
        f"the plan needs a link {missing}, and the pipeline file has none; add it under "
        "cluster.links, or choose other tiers"
    )
    assert found == (said if missing else "")


def test_plan_with_two_tiers_for_one_task_is_refused() -> None:
    """The last one counted, silently."""
    stages = [["scan", "handheld"], ["read", "cloud"], ["scan", "cloud"]]
    said = "the plan has two tiers for task 'scan'; remove one"
    assert refused(json.dumps({**PLAN, "stages": stages})) == said
    assert "a second time" in refused(json.dumps(PLAN)[:-1] + ', "stages": []}')


def test_a_plan_without_a_link_for_its_results_is_refused() -> None:
    space = replace(SPACE, links={("handheld", "cloud"): SPACE.links["handheld", "cloud"]})
    assert refused(json.dumps(PLAN), space).startswith("the plan needs a link cloud>handheld")


@given(st.sampled_from(["stages", "config", "shares"]), values)
def test_any_value_of_a_key_gives_a_plan_or_a_sentence(key: str, value: object) -> None:
    refused(json.dumps({**PLAN, key: value}))


@given(st.sampled_from(list(PLAN["config"])), values)
def test_any_value_of_a_knob_gives_a_plan_or_a_sentence(knob: str, value: object) -> None:
    """The control app ended with an error, and again after each restart for 15 seconds."""
    refused(json.dumps({**PLAN, "config": {**PLAN["config"], knob: value}}))


@pytest.mark.parametrize("value", [None, [0.5], {}])
def test_knob_with_a_value_that_is_no_option_is_named(value: object) -> None:
    plan = {**PLAN, "config": {**PLAN["config"], "scan.scale": value}}
    assert refused(json.dumps(plan)) == (
        "the plan sets scan.scale to no text or number; write one of its options"
    )


@pytest.mark.parametrize("depth", [200, 400, 600, 900, 100_000])
def test_nested_plan_is_refused(depth: int) -> None:
    nested = "[" * depth + "]" * depth
    assert refused(nested)
    assert refused(json.dumps({**PLAN, "shares": {"read": 7}}).replace("7", nested))


@pytest.mark.parametrize(
    "changed",
    [
        {"stages": [["scan", "\ud800"], ["read", "cloud"]]},
        {"stages": [["scan", "cloud"], ["read", "cloud"], ["\ud800", "cloud"]]},
        {"config": {**PLAN["config"], "scan.scale": "\ud800"}},
        {"config": {"\ud800": 1}},
        {"shares": {"read": "\ud800"}},
        {"shares": {"\ud800": 1}},
        {"\ud800": 1},
    ],
)
def test_a_plan_with_half_a_character_is_refused_in_a_sentence_that_can_be_written(
    changed: dict[str, Any],
) -> None:
    """The result could not be encoded, which ended the control app, again after each restart."""
    assert refused(json.dumps({**PLAN, **changed})).encode()

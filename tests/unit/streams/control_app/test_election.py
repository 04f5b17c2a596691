"""The app in charge, by the topics that the group of control apps assigns."""

import pytest

from streams.control_app.election import TopicGone, charged

COMMANDS, PLANS = "headrace.commands", "headrace.plans"


@pytest.mark.parametrize(
    ("topics", "in_charge"),
    [((COMMANDS, PLANS), True), ((PLANS, COMMANDS, "shop.other"), True), ((), False)],
)
def test_an_app_with_both_topics_is_in_charge(topics: tuple[str, ...], in_charge: bool) -> None:
    assert charged("shop", topics) is in_charge


@pytest.mark.parametrize(("had", "lost"), [(COMMANDS, PLANS), (PLANS, COMMANDS)])
def test_an_app_with_one_of_them_names_the_other(had: str, lost: str) -> None:
    with pytest.raises(TopicGone, match=f"the broker has lost {lost}; this control app begins"):
        charged("shop", [had])

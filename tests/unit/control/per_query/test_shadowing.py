from math import inf

import pytest
from msgspec.structs import replace

from control.per_query.shadowing import (
    SHADOW,
    SLACK_WINDOW_S,
    VALID_S,
    RecentSlack,
    has_room,
    is_sampled,
    is_shadow,
    most_accurate_ways,
    shadow_of,
)
from schemas.records import Origin
from tests.builders import a_lease, a_pipeline, a_plan, a_work

PIPELINE = a_pipeline({"locate": ("read",), "read": ()})
ACCURACIES = {"locate/v": 0.9, "locate/w": 0.8, "read/v": 0.7, "read/w": 0.95}
LEASES = (
    a_lease("w0", "locate", "v", 4, (0,)),
    a_lease("w1", "locate", "w", 4, (1,)),
    a_lease("w2", "read", "v", 4, (0,)),
    a_lease("w3", "read", "w", 4, (1,)),
    a_lease("w4", "read", "w", 4, (2,)),
)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_the_share_of_the_queries_is_sampled_whatever_their_rhythm(share: float) -> None:
    for step in (1, 2, 10, 100, 128):
        origins = [Origin(p, step * n) for p in range(4) for n in range(10_000)]
        found = sum(is_sampled(origin, share) for origin in origins) / len(origins)
        assert found == pytest.approx(share, rel=0.12)


def test_all_or_none_can_be_sampled() -> None:
    origins = [Origin(1, offset) for offset in range(1000)]
    assert all(is_sampled(origin, 1.0) for origin in origins)
    assert not any(is_sampled(origin, 0.0) for origin in origins)


def test_a_shadow_goes_to_the_most_accurate_variant_of_each_task_by_turns() -> None:
    ways = most_accurate_ways(a_plan(LEASES), PIPELINE, ACCURACIES)
    assert ways == (("locate/v", LEASES[:1]), ("read/w", LEASES[3:]))
    work = a_work(task="locate")
    slots = []
    for turn in (1, 2):
        shadow = shadow_of(work, ways, turn, 7.0)
        assert is_shadow(shadow)
        assert not is_shadow(work)
        assert shadow.deadline_s == 7.0 + VALID_S
        assert shadow.session is not None
        assert shadow.session.session == SHADOW
        slots.append([shadow.session.stage(task).slot for task in ("locate", "read")])
    assert slots == [[0, 2], [0, 1]]


@pytest.mark.parametrize(
    "leases",
    [
        LEASES[:2],  # no reader
        (LEASES[0], LEASES[2]),  # one variant a task: nothing to compare
        (*LEASES[:3], replace(LEASES[3], type="g4")),  # ingress dispatches
        (*LEASES[:4], replace(LEASES[4], variant="x")),  # accuracy unknown
    ],
)
def test_no_reference_path_exists_without_a_possible_comparison(leases: tuple) -> None:
    assert most_accurate_ways(a_plan(leases), PIPELINE, ACCURACIES) is None


def test_a_draining_worker_is_no_way() -> None:
    leases = (*LEASES[:3], replace(LEASES[3], open_slot=-1), LEASES[4])
    ways = most_accurate_ways(a_plan(leases), PIPELINE, ACCURACIES)
    assert ways is not None
    assert ways[1] == ("read/w", (LEASES[4],))


def test_the_least_slack_is_remembered_for_one_to_two_windows() -> None:
    slack = RecentSlack()
    assert slack.least_s(0.0) == inf
    slack.saw([0.3, -0.1], 0.0)
    slack.saw([0.2], SLACK_WINDOW_S)
    assert slack.least_s(1.9 * SLACK_WINDOW_S) == -0.1
    assert slack.least_s(2.1 * SLACK_WINDOW_S) == 0.2
    assert slack.least_s(9 * SLACK_WINDOW_S) == inf
    slack.saw([0.1], 9 * SLACK_WINDOW_S)
    assert slack.least_s(11 * SLACK_WINDOW_S) == inf  # nothing was asked or seen for two windows


def test_a_worker_has_room_if_its_items_could_have_waited() -> None:
    assert has_room(inf, 0.1, 0.0)
    assert has_room(0.31, 0.1, 0.2)
    assert not has_room(0.29, 0.1, 0.2)

"""Slots with notices from before a change of ``egress_partitions``."""

import pytest

from streams.kafka.former_notices import former_slots


@pytest.mark.parametrize(
    ("what", "places", "notes", "found"),
    [
        ("the same number", {0: 9, 1: 9}, {0: {0: 5}, 1: {1: 5}}, ()),
        ("four became two", {2: 9}, {0: {0: 5}, 1: {}, 2: {2: 5}, 3: {}}, (2,)),
        ("all of it is closed", {2: 9}, {0: {0: 5}, 1: {}, 2: {2: 9}, 3: {}}, ()),
        ("there and back again", {2: 9}, {0: {2: 7}, 1: {}, 2: {2: 5}, 3: {}}, ()),
        ("nothing closed since the change", {2: 9}, {0: {2: 5}, 1: {}, 2: {2: 5}}, (2,)),
        ("nothing closed ever", {2: 9}, {0: {}, 1: {}, 2: {}}, (1, 2)),
        ("nothing read yet", {2: 0}, {0: {}, 1: {}}, ()),
    ],
)
def test_egress_first_closes_the_slots_that_had_a_partition_last(
    what: str, places: dict[int, int], notes: dict[int, dict[int, int]], found: tuple[int, ...]
) -> None:
    assert former_slots(places, notes, 2) == found, what

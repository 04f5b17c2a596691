from operators.scoring.label_join import ENTRY_BYTES, Place, WaitingRoom


def place(offset: int, partition: int = 0, at_s: float = 0.0) -> Place:
    return Place(partition, offset, at_s)


def test_taken_value_no_longer_waits_and_is_remembered() -> None:
    room = WaitingRoom[str](10**6, 60.0)
    room.add("q1", "seven", 5, place(3))
    assert room.waits("q1")
    assert room.take("q1") == "seven"
    assert ("q1" in room, room.waits("q1")) == (True, False)


def test_the_oldest_are_given_up_beyond_the_memory() -> None:
    room = WaitingRoom[str](3 * (ENTRY_BYTES + 100), 60.0)
    for number in range(5):
        room.add(f"q{number}", str(number), 100, place(number))
        room.expire(0.0)
    assert [f"q{number}" in room for number in range(5)] == [False, False, True, True, True]
    assert room.bytes == 3 * (ENTRY_BYTES + 100)


def test_expired_values_are_evicted_and_only_unjoined_ones_are_reported() -> None:
    room = WaitingRoom[str](10**6, 60.0)
    room.add("joined", "a", 1, place(0, at_s=0.0))
    room.add("old", "b", 1, place(1, at_s=0.0))
    room.add("new", "c", 1, place(2, at_s=50.0))
    room.take("joined")
    assert room.expire(61.0) == ["b"]
    assert len(room) == 1


def test_a_value_of_the_same_name_takes_the_place_of_the_older_one() -> None:
    room = WaitingRoom[str](10**6, 60.0)
    room.add("q", "old", 3, place(0))
    room.add("q", "new", 3, place(9))
    assert room.bytes == ENTRY_BYTES + 3
    assert room.oldest([0]) == {0: 9}
    assert room.take("q") == "new"


def test_the_oldest_offset_of_each_partition_is_known() -> None:
    room = WaitingRoom[str](10**6, 60.0)
    for name, partition, offset in (("a", 0, 4), ("b", 1, 7), ("c", 0, 5)):
        room.add(name, name, 1, place(offset, partition))
    assert room.oldest([0, 1, 2]) == {0: 4, 1: 7}

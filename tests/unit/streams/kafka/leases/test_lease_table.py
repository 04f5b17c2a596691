"""Leases of egress partitions: no two holders' answers can be written at one time."""

from hypothesis import given
from hypothesis import strategies as st

from streams.kafka.leases.lease_table import (
    LEASE_S,
    SKEW_S,
    Act,
    LeaseRecord,
    LeaseTable,
    encoded,
    read_lease,
)


def a_record(act: Act, holder: str = "a", *partitions: int) -> LeaseRecord:
    return LeaseRecord(holder=holder, act=act, partitions=partitions or (0,))


def table(*records: tuple[LeaseRecord, float]) -> LeaseTable:
    found = LeaseTable()
    for record, at_s in records:
        found.take(record, at_s)
    return found


def test_the_first_holder_need_not_wait() -> None:
    first = table((a_record(Act.CLAIM), 10.0))
    assert first.free_s((0,)) == 0.0
    assert first.renewed_s("a", (0,)) == 10.0


def test_a_claim_voids_the_earlier_holders_renewals_and_waits_for_its_last_one() -> None:
    both = table(
        (a_record(Act.CLAIM), 10.0),
        (a_record(Act.RENEW), 11.0),
        (a_record(Act.CLAIM, "b"), 11.5),
        (a_record(Act.RENEW), 12.0),
    )
    assert both.renewed_s("a", (0,)) is None
    assert both.renewed_s("b", (0,)) == 11.5
    assert both.free_s((0,)) == 11.0 + LEASE_S + SKEW_S


def test_a_released_partition_is_free_at_once_unless_an_earlier_holders_lease_runs() -> None:
    claims = [(a_record(Act.CLAIM), 10.0), (a_record(Act.CLAIM, "b"), 11.0)]
    released = table(*claims, (a_record(Act.RELEASE, "b"), 11.1), (a_record(Act.CLAIM, "c"), 11.2))
    assert released.free_s((0,)) == 10.0 + LEASE_S + SKEW_S
    alone = table(claims[0], (a_record(Act.RELEASE), 10.5), (a_record(Act.CLAIM, "b"), 10.6))
    assert alone.free_s((0,)) == 0.0
    assert alone.renewed_s("a", (0,)) is None


def test_a_holder_that_loses_one_partition_has_lost_its_lease() -> None:
    found = table((a_record(Act.CLAIM, "a", 0, 1), 1.0), (a_record(Act.CLAIM, "b", 1, 2), 2.0))
    assert found.renewed_s("a", (0, 1)) is None
    assert found.free_s((1, 2)) == 1.0 + LEASE_S + SKEW_S
    assert found.free_s((2,)) == 0.0


def test_a_record_survives_its_encoding_and_bytes_that_are_none_are_passed_over() -> None:
    record = a_record(Act.RENEW, "a", 1, 2)
    assert read_lease(encoded(record)) == record
    assert read_lease(b"") is None
    assert read_lease(b'{"act": "steal"}') is None


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([*Act]),
        st.integers(0, 4),  # which of the latest holders renews or releases
        st.sets(st.integers(0, 2), min_size=1, max_size=3),
        st.floats(0.0, 3.0),
    ),
    max_size=30,
)


@given(EVENTS)
def test_no_answer_of_a_former_holder_can_be_written_once_the_next_one_begins(
    events: list[tuple[Act, int, set[int], float]],
) -> None:
    """Each holder may write with its newest stamp for as long as the broker takes it."""
    leases, now = LeaseTable(), 100.0
    owned: list[tuple[int, ...]] = []  # by holder
    writable_until_s: dict[int, dict[int, float]] = {p: {} for p in range(3)}
    for act, which, partitions, later_s in events:
        now += later_s
        if act is Act.CLAIM or not owned:
            owned.append(tuple(sorted(partitions)))
            act, holder = Act.CLAIM, len(owned) - 1
        else:
            holder = max(0, len(owned) - 1 - which)
        mine = owned[holder]
        leases.take(LeaseRecord(holder=str(holder), act=act, partitions=mine), now)
        if act is Act.CLAIM:
            begins_s = max(now, leases.free_s(mine))
            assert all(s < begins_s for p in mine for s in writable_until_s[p].values())
        stamp_s = leases.renewed_s(str(holder), mine)
        for p in mine:
            if act is Act.RELEASE:
                writable_until_s[p].pop(holder, None)
            elif stamp_s is not None:
                writable_until_s[p][holder] = stamp_s + LEASE_S

"""Leases of egress partitions: answers of two holders can never be written at the same time."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.fencing import LeaseLost
from streams.kafka.leases.lease_table import (
    LEASE_S,
    NO_CLAIM,
    SKEW_S,
    Act,
    LeaseHolder,
    LeaseRecord,
    LeaseTable,
    encoded,
    read_lease,
)
from tests.property_examples import at_most

Logged = tuple[LeaseRecord, int, float]  # with its offset and the broker's time


def a_record(act: Act, holder: str = "a", *partitions: int) -> LeaseRecord:
    return LeaseRecord(holder=holder, act=act, partitions=partitions or (0,))


def table(*records: tuple[LeaseRecord, float]) -> LeaseTable:
    return folded([(record, offset, at_s) for offset, (record, at_s) in enumerate(records)])


def folded(log: list[Logged]) -> LeaseTable:
    found = LeaseTable()
    for logged in log:
        found.take(*logged)
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


def test_a_holder_whose_claim_is_older_than_the_log_is_known_by_its_renewals() -> None:
    """An egress renews for longer than the topic retains its claim."""
    renewal = LeaseRecord(holder="b", act=Act.RENEW, partitions=(0,), claim=7)
    zombie = a_record(Act.RENEW)
    found = folded([(renewal, 902, 12.0)])
    assert found.renewed_s("b", (0,)) == 12.0
    log = [(zombie, 900, 10.0), (renewal, 901, 11.0), (zombie, 902, 12.0)]
    successor = folded([*log, (a_record(Act.CLAIM, "c"), 903, 13.0)])
    assert successor.free_s((0,)) == 11.0 + LEASE_S + SKEW_S


def test_a_release_without_its_claim_does_not_free_what_may_rest_on_an_earlier_lease() -> None:
    release = LeaseRecord(holder="b", act=Act.RELEASE, partitions=(0,), claim=7)
    successor = folded([(release, 9, 11.1), (a_record(Act.CLAIM, "c"), 10, 11.2)])
    assert successor.free_s((0,)) == 11.1 + LEASE_S + SKEW_S


def holding(now: float = 5.0) -> LeaseHolder:
    """Return a holder whose claim is at offset 7."""
    holder = LeaseHolder("a", (0,))
    holder.take(holder.record(), 7, now, now)
    return holder


def test_renewals_bear_the_offset_of_their_claim() -> None:
    holder = holding()
    assert (holder.record().claim, holder.release().claim) == (7, 7)


def test_a_holder_that_returns_after_its_successors_claim_was_deleted_ends() -> None:
    """It was cut off for longer than the topic retains records."""
    renewal = LeaseRecord(holder="b", act=Act.RENEW, partitions=(0,), claim=9)
    with pytest.raises(LeaseLost, match="b has taken over"):
        holding().take(renewal, 8, 700.0, 700.0)
    with pytest.raises(LeaseLost, match="were deleted before this egress read them"):
        holding().take(holding().record(), 900, 700.0, 700.0)


def test_invalid_lease_record_still_takes_its_offset() -> None:
    holder = holding()
    holder.take(None, 8, 6.0, 6.0)
    holder.take(holder.record(), 9, 7.0, 7.0)
    assert holder.stamp_s == 7.0


def test_a_record_survives_its_encoding_and_bytes_that_are_none_are_passed_over() -> None:
    record = a_record(Act.RENEW, "a", 1, 2)
    assert read_lease(encoded(record)) == record
    assert read_lease(b"") is None
    assert read_lease(b'{"act": "steal"}') is None
    assert read_lease(b'{"holder": "\xff", "act": "claim", "partitions": [0]}') is None
    assert read_lease(b'{"since": ' + b"[" * 100_000) is None


EVENTS = st.lists(
    st.tuples(
        st.sampled_from([*Act]),
        st.integers(0, 4),  # which of the latest holders renews or releases
        st.sets(st.integers(0, 2), min_size=1, max_size=3),
        st.floats(0.0, 3.0),
        st.booleans(),  # whether a new holder reads no more of the log than necessary
    ),
    max_size=30,
)


@dataclass(frozen=True)
class Holder:
    name: str
    partitions: tuple[int, ...]
    claim: int  # its offset
    table: LeaseTable

    def record(self, act: Act) -> LeaseRecord:
        claim = NO_CLAIM if act is Act.CLAIM else self.claim
        return LeaseRecord(holder=self.name, act=act, partitions=self.partitions, claim=claim)


@settings(max_examples=3 * at_most(100))
@given(EVENTS)
def test_no_answer_of_a_former_holder_can_be_written_once_the_next_one_begins(
    events: list[tuple[Act, int, set[int], float, bool]],
) -> None:
    """Each holder may write with its newest stamp for as long as the broker accepts it."""
    now = 100.0
    log: list[Logged] = []
    holders: list[Holder] = []
    writable_until_s: dict[int, dict[str, float]] = {p: {} for p in range(3)}
    for act, which, partitions, later_s, little in events:
        now += later_s
        if act is Act.CLAIM or not holders:
            read = folded(recent(log, now) if little else log)
            holders.append(Holder(str(len(holders)), tuple(partitions), len(log), read))
            act, one = Act.CLAIM, holders[-1]
        else:
            one = holders[max(0, len(holders) - 1 - which)]
        log.append((one.record(act), len(log), now))
        for each in holders:
            each.table.take(*log[-1])
        if act is Act.CLAIM:
            begins_s = max(now, one.table.free_s(one.partitions))
            ends = [s for p in one.partitions for s in writable_until_s[p].values()]
            assert max(ends, default=0.0) < begins_s
        stamp_s = one.table.renewed_s(one.name, one.partitions)
        for p in one.partitions:
            if act is Act.RELEASE:
                writable_until_s[p].pop(one.name, None)
            elif stamp_s is not None:
                writable_until_s[p][one.name] = stamp_s + LEASE_S


def recent(log: list[Logged], now: float) -> list[Logged]:
    """Return the records that an earlier lease may rest on when a holder claims."""
    return [logged for logged in log if logged[2] >= now - LEASE_S - SKEW_S]

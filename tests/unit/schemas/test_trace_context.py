"""W3C trace context in headers: valid values pass unchanged, all others count as absent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec.raw import MAX_ID_LENGTH
from schemas.records import Trace
from schemas.trace_context import MOST_STATE, headers_of, trace_of
from streams.codecs.size_gate import MOST_ENCODED_BYTES
from streams.topics import MAX_RECORD_BYTES

ID, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{ID}-{SPAN}-01"


def found(parent: str, *states: bytes) -> Trace | None:
    states_ = [("tracestate", state) for state in states]
    return trace_of([("headrace-id", b"q"), ("traceparent", parent.encode()), *states_])


@pytest.mark.parametrize("flags", ["00", "01", "02", "ff"])
def test_a_valid_context_passes_unchanged(flags: str) -> None:
    trace = found(f"00-{ID}-{SPAN}-{flags}", b"vendor=1, other=a b")
    assert trace == Trace(f"00-{ID}-{SPAN}-{flags}", "vendor=1, other=a b")
    assert (trace.id, trace.parent, trace.sampled) == (ID, SPAN, flags in ("01", "ff"))


def test_a_later_version_passes_in_the_form_of_version_0_with_the_flag_that_is_known() -> None:
    assert found(f"cc-{ID}-{SPAN}-0b") == Trace(f"00-{ID}-{SPAN}-01")
    assert found(f"cc-{ID}-{SPAN}-fe-what.the-future\nbrings") == Trace(f"00-{ID}-{SPAN}-00")


@pytest.mark.parametrize(
    "parent",
    [
        "", "00", f"ff-{ID}-{SPAN}-01", f"{PARENT}-more", f"{PARENT}-", f"{PARENT}0", f" {PARENT}",
        f"{PARENT}\n", f"00-{'0' * 32}-{SPAN}-01", f"00-{ID}-{'0' * 16}-01",
        f"00-{ID[:-1]}-{SPAN}-01", PARENT.upper(), f"0-{ID}-{SPAN}-01", f"00-{ID}-{SPAN}-1",
        f"cc-{ID}-{SPAN}-01.more", f"00_{ID}_{SPAN}_01",
    ],
)  # fmt: skip
def test_a_malformed_parent_counts_as_absent_with_its_state(parent: str) -> None:
    assert found(parent, b"vendor=1") is None


def test_several_traceparents_are_ignored_and_several_tracestates_are_joined() -> None:
    assert trace_of([("traceparent", PARENT.encode())] * 2) is None
    assert found(PARENT, b"a=1", b"b=2") == Trace(PARENT, "a=1,b=2")


@pytest.mark.parametrize("state", [b"", b"a=\xff", b"a=1\n", "ä=1".encode()])
def test_a_malformed_state_is_left_out(state: bytes) -> None:
    assert found(PARENT, state) == Trace(PARENT)


def test_of_a_long_state_the_long_members_go_first_then_the_last_ones() -> None:
    member = b"k=" + b"v" * 98
    long = b"l=" + b"v" * 200
    assert found(PARENT, member, long) == Trace(PARENT, (member + b"," + long).decode())
    kept = b",".join([member] * 5).decode()
    assert found(PARENT, long, *[member] * 7) == Trace(PARENT, kept)
    assert found(PARENT, b"l=" + b"v" * MOST_STATE) == Trace(PARENT)


def test_a_header_without_a_value_counts_as_absent() -> None:
    missing: list[tuple[str, bytes]] = [("traceparent", None)]  # type: ignore[list-item]
    assert trace_of(missing) is None


hexadecimal = st.text("0123456789abcdef", min_size=1, max_size=33)
parents = st.binary(max_size=70) | st.builds(
    lambda *parts: "-".join(parts).encode(), st.sampled_from(["00", "01", "ff"]),
    st.just(ID) | hexadecimal, st.just(SPAN) | hexadecimal, st.just("01") | hexadecimal,
)  # fmt: skip
states = st.binary(max_size=40) | st.builds(
    lambda size, times: b",".join([b"k=" + b"v" * size] * times),
    st.integers(0, 600), st.integers(0, 40),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(st.just("traceparent"), parents)
        | st.tuples(st.just("tracestate"), states)
        | st.tuples(st.text(max_size=5), st.binary(max_size=5)),
        max_size=5,
    )
)
def test_whatever_the_headers_are_what_is_passed_on_is_valid_and_fits_every_record(
    headers: list[tuple[str, bytes]],
) -> None:
    trace = trace_of(headers)
    passed = headers_of(trace)
    assert trace_of(passed) == trace
    reserve = MAX_RECORD_BYTES - MOST_ENCODED_BYTES - 4 * MAX_ID_LENGTH  # less the longest key
    assert sum(len(name) + len(value) for name, value in passed) < reserve / 2

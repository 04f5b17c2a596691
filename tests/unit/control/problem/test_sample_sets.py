"""Sample set names identify the inputs; sets that may be shared have one name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.problem.sample_sets import InputSet, Truth, first_set, input_set, own_set

MS = st.integers(0, 4 * 10**12)
SESSIONS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)


@given(session=st.one_of(st.just(""), SESSIONS), since_ms=MS)
def test_labelled_inputs_are_found_by_their_name(session: str, since_ms: int) -> None:
    found = input_set(f"recent@{session}@{since_ms}")
    assert found == InputSet(session, since_ms / 1e3)
    assert found.name.startswith(f"recent@{session}@")


@given(session=SESSIONS, since_ms=MS, more_ms=MS)
def test_inputs_between_two_times_are_found_by_their_name(
    session: str, since_ms: int, more_ms: int
) -> None:
    found = input_set(f"inputs@{session}@{since_ms}-{since_ms + more_ms}")
    assert found == InputSet(session, since_ms / 1e3, (since_ms + more_ms) / 1e3)


@pytest.mark.parametrize(
    "name",
    ["workload@7", "recent@cam", "recent@cam@", "recent@cam@1-2", "inputs@cam@1", "inputs@cam@1-",
     "inputs@cam@-2", "cam@1", ""],
)  # fmt: skip
def test_other_names_are_no_inputs(name: str) -> None:
    assert input_set(name) is None


def test_a_session_without_inputs_is_profiled_on_the_workload_or_on_the_labels_of_all() -> None:
    assert first_set(Truth.WORKLOAD, 7205.0) == first_set(Truth.REFERENCE, 7205.0) == "workload@0"
    assert first_set(Truth.FEEDBACK, 7205.0) == first_set(Truth.FEEDBACK, 10799.0)
    assert input_set(first_set(Truth.FEEDBACK, 7205.0)) == InputSet("", 3600.0)


def test_a_sessions_own_inputs_need_labels_but_for_a_reference() -> None:
    assert own_set(Truth.WORKLOAD, "cam", 1.5, 4.0) == "recent@cam@1500"
    assert own_set(Truth.FEEDBACK, "cam", 1.5, 4.0) == "recent@cam@1500"
    assert own_set(Truth.REFERENCE, "cam", 1.5, 4.0) == "inputs@cam@1500-4000"

"""headrace/arrivals/load_phases.py: loads whose rate follows phases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.arrivals.arrival_processes import ramp
from headrace.arrivals.load_phases import LoadPhase, Phases
from headrace.errors import ArrivalsError

RATES = st.integers(1, 99_999).map(lambda n: n / 100)
PHASES = st.builds(
    Phases,
    st.lists(
        st.builds(
            LoadPhase,
            st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True),
            st.integers(1, 9999).map(lambda n: n / 10),
            RATES,
            RATES,
        ),
        min_size=1,
        max_size=5,
    ).map(tuple),
)


@given(PHASES)
def test_phases_are_read_as_they_are_written(phases: Phases) -> None:
    assert Phases.parsed(str(phases)) == phases


def test_a_phase_has_a_name_a_length_and_one_or_two_rates() -> None:
    assert Phases.parsed("quiet=500ms@3.3, rising=24s@3.3-82") == Phases(
        (LoadPhase("quiet", 0.5, 3.3, 3.3), LoadPhase("rising", 24.0, 3.3, 82.0))
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is no phase; write NAME=LENGTH@RATE"),
        ("calm=10s", "'calm=10s' is no phase"),
        ("calm=10@5", "'calm=10@5' is no phase"),
        ("calm=0s@5", "'calm=0s@5' is no phase"),
        ("calm=10s@-5", "'calm=10s@-5' is no phase"),
        ("calm=10s@5,burst", "'burst' is no phase"),
        ("calm=10s@0", "send nothing; give one of them a rate above 0"),
        ("calm=10s@1000000", "100000 queries/s are the most"),
        ("calm=999999s@100000", r"1e\+11 queries, and 1e\+08 are the most of a run"),
    ],
)
def test_a_wrong_phase_is_refused_with_what_is_wanted(text: str, said: str) -> None:
    with pytest.raises(ArrivalsError, match=said):
        Phases.parsed(text)


def test_phases_tell_where_they_are() -> None:
    phases = Phases((LoadPhase("quiet", 2.0, 1.0, 1.0), LoadPhase("rising", 4.0, 1.0, 9.0)))
    assert [phases.at(s) for s in (0.0, 2.0, 4.0, 6.0)] == [
        ("quiet", 1.0), ("rising", 1.0), ("rising", 5.0), ("over", 0.0)
    ]  # fmt: skip
    assert (phases.mean_qps, phases.peak_qps) == (pytest.approx(22 / 6), 9.0)


@given(st.floats(0, 50), st.floats(0, 50), st.floats(0.1, 20), st.integers(0, 99))
def test_arrivals_of_a_ramp_lie_within_it_in_order(
    begin: float, end: float, seconds: float, seed: int
) -> None:
    times = ramp(begin, end, seconds, np.random.default_rng(seed))
    assert (np.diff(times) >= 0).all()
    assert ((times >= 0) & (times < seconds)).all()


def test_a_ramp_has_the_rates_it_says() -> None:
    times = ramp(0.0, 1000.0, 10.0, np.random.default_rng(1))
    counts, _ = np.histogram(times, bins=10, range=(0, 10))
    assert len(times) == pytest.approx(5000, rel=0.05)
    assert counts == pytest.approx(100 * np.arange(0.5, 10), abs=150)


def test_arrivals_go_on_from_phase_to_phase() -> None:
    phases = Phases.parsed("quiet=16s@2,rising=24s@2-50,peak=16s@50,falling=8s@50-2,recovery=16s@2")
    times = phases.drawn(np.random.default_rng(0))
    assert (np.diff(times) >= 0).all()
    assert times[-1] < 80.0
    assert len(times) == pytest.approx(phases.mean_qps * 80.0, rel=0.1)
    assert (times == phases.drawn(np.random.default_rng(0))).all()

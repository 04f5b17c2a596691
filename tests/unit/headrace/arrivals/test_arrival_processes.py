"""Arrival times: drawn, read from files, and errors with their line."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.arrivals.arrival_processes import (
    MOST_QPS,
    Bursts,
    Renewal,
    from_rates,
    gamma,
    poisson,
    read_arrivals,
)
from headrace.errors import ArrivalsError


def test_poisson_arrivals_come_at_the_rate_that_was_asked_for(rng: np.random.Generator) -> None:
    times = poisson(50.0, 200.0, rng)
    assert abs(len(times) - 10_000) < 4 * 100  # four standard deviations
    gaps = np.diff(times)
    assert abs(gaps.std() / gaps.mean() - 1.0) < 0.05  # exponential gaps


@given(rate=st.floats(0.1, 200), seconds=st.floats(0.1, 20), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_poisson_arrivals_ascend_within_the_time(rate: float, seconds: float, seed: int) -> None:
    times = poisson(rate, seconds, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < seconds))


def test_the_same_seed_gives_the_same_arrivals() -> None:
    one, other = (poisson(20.0, 5.0, np.random.default_rng(7)) for _ in range(2))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    ("rate", "seconds", "what"), [(0.0, 1.0, "rate is 0"), (1.0, -1.0, "time is -1")]
)
def test_a_rate_or_time_that_is_not_above_0_is_refused(
    rng: np.random.Generator, rate: float, seconds: float, what: str
) -> None:
    with pytest.raises(ArrivalsError, match=what):
        poisson(rate, seconds, rng)


@given(rates=st.lists(st.floats(0, 50), min_size=1, max_size=20), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_seconds_without_a_rate_have_no_arrivals(rates: list[float], seed: int) -> None:
    times = from_rates(rates, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert {int(t) for t in times} <= {s for s, rate in enumerate(rates) if rate > 0}


def test_a_file_of_milliseconds_is_read_as_seconds(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    file = tmp_path / "arrivals.txt"
    file.write_text("0\n12.5\n12.5\n1000\n")
    assert read_arrivals(file, rng).tolist() == [0.0, 0.0125, 0.0125, 1.0]


def test_a_compressed_file_is_read_too(tmp_path: Path, rng: np.random.Generator) -> None:
    file = tmp_path / "arrivals.txt.gz"
    file.write_bytes(gzip.compress(b"1\n2\n"))
    assert read_arrivals(file, rng).tolist() == [0.001, 0.002]


def test_rates_are_read_below_their_header(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("second,qps\n0,30\n1,0\n2,30\n")
    drawn = read_arrivals(file, np.random.default_rng(3)).tolist()
    assert {int(t) for t in drawn} == {0, 2}


WRONG = [
    ("a.txt", "1\n3\n2\n", r"a\.txt:3: 2 comes after 3; sort"),
    ("a.txt", "1\n-3\n", r"a\.txt:2: -3 is negative"),
    ("a.txt", "1\nsoon\n", r"a\.txt:2: 'soon' is no number; a time in ms"),
    ("a.txt", "nan\n", r"a\.txt:1: 'nan' is no number"),
    ("a.txt", "inf\n", r"a\.txt:1: 'inf' is no number"),
    ("a.txt", "1\n\n2\n", r"a\.txt:2: the line is empty"),
    ("a.txt", "", r"a\.txt is empty; write one arrival time"),
    ("a.csv", "second,qps\n0,5\n2,5\n", r"a\.csv:3: second 2 where 1 is due"),
    ("a.csv", "second,qps\n0,5\n1,-5\n", r"a\.csv:3: -5 is negative; a rate"),
    ("a.csv", "second,qps\n0,5\n1,many\n", r"a\.csv:3: 'many' is no number; a rate in queries/s"),
    ("a.csv", "second,qps\n", r"a\.csv has a header only"),
    ("a.csv", "0,5\n1,5\n", r"a\.csv:1: '0,5' has several columns and no header"),
    ("a.csv", "second,qps\n0,5\n1,2000000\n", r"a\.csv:3: 2e\+06 queries/s; 100000 are the most"),
    ("a.parquet", "1\n", r"read from \.txt, \.csv, \.gz"),
    ("a.gz", "no gzip", r"a\.gz cannot be read"),
    ("a.csv", "ms,size\n1,\u00b2\n", r"a\.csv:2: '\u00b2' is no size; a whole number from 1"),
    ("a.csv", "ms,size\n1,0\n", r"a\.csv:2: '0' is no size"),
    ("a.csv", "ms,size\n1," + "9" * 5000, r"a\.csv:2: '9{40}' is no size"),
]


def test_a_compressed_file_that_is_damaged_is_reported(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    raw = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(1000))))
    for at in range(10, len(raw)):
        damaged = bytes((*raw[:at], raw[at] ^ 0xFF, *raw[at + 1 :]))
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(ArrivalsError, match=r"a\.gz cannot be read"):
            read_arrivals(tmp_path / "a.gz", rng)


@pytest.mark.parametrize("draw", [poisson, lambda *more: gamma(*more[:2], 0.5, more[2])])
@pytest.mark.parametrize(("rate", "seconds"), [(1e300, 1.0), (1e6, 1e9)])
def test_more_queries_than_a_run_can_have_are_refused(
    rng: np.random.Generator, draw: Any, rate: float, seconds: float
) -> None:
    with pytest.raises(ArrivalsError, match=r"queries, and 1e\+08 are the most of a run; lower"):
        draw(rate, seconds, rng)


@pytest.mark.parametrize(("name", "text", "what"), WRONG)
def test_faults_of_a_file_are_reported_with_their_line(
    tmp_path: Path, rng: np.random.Generator, name: str, text: str, what: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ArrivalsError, match=what):
        read_arrivals(file, rng)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path, rng: np.random.Generator) -> None:
    with pytest.raises(ArrivalsError, match="No such file"):
        read_arrivals(tmp_path / "gone.txt", rng)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gaps_vary_as_was_asked_for(rng: np.random.Generator, cv: float) -> None:
    times = gamma(100.0, 400.0, cv, rng)
    gaps = np.diff(times)
    assert len(times) == pytest.approx(40_000, rel=5 * cv / 200)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


@given(rate=st.floats(0.1, 200), cv=st.floats(0.1, 5), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_gamma_arrivals_ascend_within_the_time(rate: float, cv: float, seed: int) -> None:
    times = gamma(rate, 5.0, cv, np.random.default_rng(seed))
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < 5.0))


def test_a_variation_of_nothing_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ArrivalsError, match="variation is 0; it must be above 0"):
        gamma(1.0, 1.0, 0.0, rng)


def test_a_renewal_process_of_variation_1_is_the_poisson_process() -> None:
    one, other = (np.random.default_rng(4) for _ in range(2))
    assert Renewal(20.0, 5.0).drawn(one).tolist() == poisson(20.0, 5.0, other).tolist()


def test_bursts_keep_the_mean_and_are_bursts(rng: np.random.Generator) -> None:
    times = Bursts(rate_qps=100.0, seconds=4000.0, factor=5.0).drawn(rng)
    assert np.all(np.diff(times) >= 0)
    assert len(times) == pytest.approx(400_000, rel=0.1)
    counts = np.histogram(times, 4000, (0, 4000))[0]
    assert counts.var() / counts.mean() > 20  # a Poisson process has 1


def test_a_million_queries_in_a_second_are_times_in_another_unit(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("0\n0.5\n" + "".join(f"{5000 + i / 1000:.3f}\n" for i in range(MOST_QPS + 7)))
    what = r"a\.txt:3: 100007 queries arrive within the second from here.*in milliseconds"
    with pytest.raises(ArrivalsError, match=what):
        read_arrivals(file, rng)

"""Arrival times in any recorded unit: recognised, or refused with a sentence."""

from pathlib import Path

import numpy as np
import pytest

from headrace.arrivals.arrival_processes import ArrivalsError, Recorded, read_workload

EPOCH_S = 1_763_800_000


def read(tmp_path: Path, *lines: str) -> list[float]:
    path = tmp_path / "arrivals.csv"
    path.write_text("\n".join(lines) + "\n")
    found = read_workload(path)
    assert isinstance(found, Recorded)
    return [round(time, 6) for time in found.times_s.tolist()]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_epoch_times_count_from_the_first_one(tmp_path: Path, unit: int) -> None:
    lines = [str(EPOCH_S * unit), str((EPOCH_S + 2) * unit), str((EPOCH_S + 5) * unit)]
    assert read(tmp_path, *lines) == [0.0, 2.0, 5.0]


def test_iso_times_count_from_the_first_one(tmp_path: Path) -> None:
    lines = ["2026-11-22T10:00:00Z", "2026-11-22T10:00:00.250+00:00", "2026-11-22 10:00:01"]
    assert read(tmp_path, *lines) == [0.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [("seconds", "0.5", 0.5), ("ms", "0.5", 0.0005), ("us", "500", 0.0005), ("s", "90", 90.0)],
)
def test_a_first_line_names_the_unit(
    tmp_path: Path, header: str, value: str, seconds: float
) -> None:
    assert read(tmp_path, header, "0", value) == [0.0, seconds]


def test_of_a_csv_the_column_of_times_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "id,arrival_s,size", "a,0.5,3", "b,1.5,4") == [0.5, 1.5]
    stamp = EPOCH_S * 1000
    assert read(tmp_path, "timestamp,user", f"{stamp},x", f"{stamp + 250},y") == [0.0, 0.25]


def test_seconds_without_a_unit_are_refused_and_not_taken_for_milliseconds(tmp_path: Path) -> None:
    times = np.linspace(0.013, 10.0, 500)
    with pytest.raises(ArrivalsError, match=r"500 queries within 9.99 ms, .* first line: seconds"):
        read(tmp_path, *(f"{time:.3f}" for time in times))
    assert read(tmp_path, "seconds", *(f"{time:.3f}" for time in times))[-1] == 10.0


def test_a_recording_that_begins_after_hours_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArrivalsError, match=r":1: the first query comes 27.8 h after the start"):
        read(tmp_path, "100000000", "100000010")


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (("2026-11-22T10:00:00", "7"), r":2: '7' is no ISO time"),
        (("2026-11-22T10:00:01", "2026-11-22T10:00:00"), ":2: the time comes before"),
        (("seconds", "1", "x"), ":3: 'x' is no number"),
        (("id,time_s", "a,1", "b"), ":3: '' is no number"),
        (("seconds",), "has a header only"),
    ],
)
def test_invalid_time_is_reported_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], what: str
) -> None:
    with pytest.raises(ArrivalsError, match=what):
        read(tmp_path, *lines)

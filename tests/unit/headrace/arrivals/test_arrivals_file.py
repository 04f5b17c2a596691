"""Files of arrivals: times in any unit, rates and sizes are read; faults are named by line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from headrace.arrivals.arrival_processes import MOST_QPS, Recorded
from headrace.arrivals.arrivals_file import read_workload
from headrace.errors import ArrivalsError

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


def test_a_file_of_milliseconds_is_read_as_seconds(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    file = tmp_path / "arrivals.txt"
    file.write_text("0\n12.5\n12.5\n1000\n")
    assert read_workload(file).drawn(rng).tolist() == [0.0, 0.0125, 0.0125, 1.0]


def test_a_compressed_file_is_read_too(tmp_path: Path, rng: np.random.Generator) -> None:
    file = tmp_path / "arrivals.txt.gz"
    file.write_bytes(gzip.compress(b"1\n2\n"))
    assert read_workload(file).drawn(rng).tolist() == [0.001, 0.002]


def test_rates_are_read_below_their_header(tmp_path: Path) -> None:
    file = tmp_path / "rates.csv"
    file.write_text("second,qps\n0,30\n1,0\n2,30\n")
    drawn = read_workload(file).drawn(np.random.default_rng(3)).tolist()
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


def test_a_compressed_file_that_is_damaged_is_reported(tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(b"".join(b"%d\n" % n for n in range(1000))))
    for at in range(10, len(raw)):
        damaged = bytes((*raw[:at], raw[at] ^ 0xFF, *raw[at + 1 :]))
        (tmp_path / "a.gz").write_bytes(damaged)
        with pytest.raises(ArrivalsError, match=r"a\.gz cannot be read"):
            read_workload(tmp_path / "a.gz")


@pytest.mark.parametrize(("name", "text", "what"), WRONG)
def test_faults_of_a_file_are_reported_with_their_line(
    tmp_path: Path, name: str, text: str, what: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ArrivalsError, match=what):
        read_workload(file)


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ArrivalsError, match="No such file"):
        read_workload(tmp_path / "gone.txt")


def test_a_million_queries_in_a_second_are_times_in_another_unit(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("0\n0.5\n" + "".join(f"{5000 + i / 1000:.3f}\n" for i in range(MOST_QPS + 7)))
    what = r"a\.txt:3: 100007 queries arrive within the second from here.*in milliseconds"
    with pytest.raises(ArrivalsError, match=what):
        read_workload(file)

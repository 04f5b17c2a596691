"""headrace/html: complete, script-free and safe pages, and axes that span their values."""

import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.atomic_file import writable, write_page
from headrace.html.charts import (
    Axis,
    ChartLabels,
    ChartLine,
    Spot,
    UprightLine,
    line_chart,
    spanning,
    spot_chart,
    tick_label,
)
from headrace.html.page import COLOURS, css, legend, number, page, section, table, text
from headrace.html.time_series_page import given_up_table, latencies, over_time
from headrace.results.time_series import TimeSeries

VOID = {"meta", "input", "br"}
LABELS = ChartLabels(x="seconds", y="accuracy, %", about="Accuracy <over> time")
NASTY = '<script>alert("x")</script>'


class Reader(HTMLParser):
    """A parser that checks that tags are closed in order and records tags and addresses."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def a_recording(**changes: object) -> TimeSeries:
    usual: dict[str, object] = {
        "width_s": 1.0, "ends_s": (1.0, 2.0, 3.0), "demand_qps": (5.0, 6.0, 7.0),
        "capacity_qps": (None, 8.0, 8.0), "devices": (3, 3, 4), "accuracy": (0.9, None, 0.8),
        "violation": (0.0, 0.5, None), "latency": ((0.1, 0.4), (0.2, 0.7), (0.3, 0.8)),
        "bad": {("read", "late"): 3, ("", "over_capacity"): 1},
    }  # fmt: skip
    return TimeSeries(**{**usual, **changes})  # type: ignore[arg-type]


def test_a_page_is_whole_has_no_script_and_asks_nobody_for_anything() -> None:
    named = [("loki", a_recording()), (NASTY, a_recording(bad={}, latency=()))]
    body = [
        legend([name for name, _ in named]), *over_time(named), latencies(named, 0.25),
        given_up_table(named),
        section(NASTY, NASTY, table((NASTY,), [[text(NASTY), number(NASTY)]])),
        section("", "", spot_chart([Spot(NASTY, css(0), 90.0, 95.0, 2.0)], LABELS)),
    ]  # fmt: skip
    made = page(NASTY, [NASTY], body, NASTY)
    read = Reader(made)
    assert (read.open, read.links) == ([], [])
    assert "script" not in read.tags
    assert read.tags.count("svg") == 6
    assert "http" not in made


def test_one_fast_policy_does_not_flatten_the_demand() -> None:
    usual = next(over_time([("loki", a_recording())]))
    fast = a_recording(capacity_qps=(None, 17_000.0, 17_000.0))
    drawn = next(over_time([("loki", a_recording()), ("fast", fast)]))
    assert "17,000" in drawn
    assert "beyond the chart, in queries/s, are drawn at its upper edge: fast 17,000." in drawn
    assert "upper edge" not in usual
    highest = max(float(y.replace(",", "")) for y in re.findall(r'"end">([0-9,.]+)<', drawn))
    assert highest <= 25  # three times the highest demand, to the next tick


@pytest.mark.parametrize("share", [0.0, 0.003, 0.664, 0.97, 1.0])
def test_the_axis_of_a_share_ends_at_a_hundred_percent_and_spans_a_point(share: float) -> None:
    flat = a_recording(accuracy=(share, share, None), violation=(share, share, None))
    for drawn in list(over_time([("loki", flat)]))[2:]:
        marks = [float(y) for y in re.findall(r'"end">([0-9.-]+)<', drawn)]
        assert max(marks) <= 100
        assert max(marks) - min(marks) >= 1


def test_a_line_has_gaps_where_nothing_is_known() -> None:
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, None), (3.0, 1.0)]
    drawn = line_chart([ChartLine("loki", "s0", points)], LABELS, rules=[UprightLine(2.5, "SLO")])
    path = drawn.partition('<path d="')[2].partition('"')[0]
    assert path.count("M") == 2
    assert "nan" not in drawn
    assert "Accuracy &lt;over&gt; time" in drawn


def test_names_of_points_do_not_cover_one_another() -> None:
    spots = [Spot(f"policy {at}", css(at), 90.0, 95.0) for at in range(4)]
    drawn = spot_chart(spots, LABELS)
    lines = [float(each.partition('y="')[2].partition('"')[0])
             for each in drawn.split('<text class="name')[1:]]  # fmt: skip
    assert all(b - a >= 15.0 for a, b in pairwise(lines))


def test_series_beyond_the_colours_are_dashed() -> None:
    assert [css(at) for at in (0, COLOURS - 1, COLOURS)] == ["s0 p0", "s7 p7", "s0 dashed p8"]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.booleans())
def test_an_axis_spans_its_values_with_round_ticks(values: list[float], zero: bool) -> None:
    axis = spanning(values, 100.0, 0.0, zero=zero)
    hair = 1e-8 * (axis.high - axis.low)
    assert axis.low - hair <= min(values)
    assert axis.high + hair >= max(values)
    assert all(0.0 <= axis.at(value) <= 100.0 for value in values)
    assert 2 <= len(axis.ticks()) <= 16


def test_values_beside_an_axis_have_no_more_digits_than_they_need() -> None:
    assert Axis(0.0, 1.0, 0.0, 1.0).ticks(5) == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert [tick_label(v) for v in (0.30000000000000004, -0.0, 1200.0, 2.5e7)] == [
        "0.3", "0", "1200", "2.5e+07"
    ]  # fmt: skip


def test_page_is_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(path, "all of it")
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "all of it"
    with pytest.raises(click.UsageError, match="cannot be written"):
        write_page(tmp_path / "none" / "page.html", "x")


def test_unwritable_page_path_is_reported_before_anything_runs(tmp_path: Path) -> None:
    writable(tmp_path / "page.html")
    with pytest.raises(click.UsageError, match="is a folder; name a file in it"):
        writable(tmp_path)
    with pytest.raises(click.UsageError, match="there is no folder"):
        writable(tmp_path / "none" / "page.html")


def test_the_bar_of_a_spot_ends_where_its_interval_does() -> None:
    spots = [Spot("plan", css(0), 50.0, 80.0, below_y=10.0), Spot("other", css(1), 60.0, 99.0)]
    drawn = spot_chart(spots, LABELS)
    found = re.search(r'<g class="spot.*?d="M\S+ (\S+)H\S+M\S+ (\S+)V(\S+)"', drawn)
    assert found is not None
    point, low, high = map(float, found.groups())
    assert high == point < low  # y grows downwards

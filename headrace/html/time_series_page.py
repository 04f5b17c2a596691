"""Render time series as page sections: over time, latency, items given up; simulated or live."""

from collections.abc import Callable, Iterator, Sequence

from headrace.html.charts import ChartLabels, ChartLine, Point, UprightLine, line_chart
from headrace.html.page import bar, css, section, table, text
from headrace.results.time_series import TimeSeries

Named = Sequence[tuple[str, TimeSeries]]  # in the order of the legend
Values = Callable[[TimeSeries], Sequence[float | None]]

SECONDS = "seconds since the first arrival"
BEYOND = 1.6  # the latency axis ends at this many SLOs at most
ABOVE = 3.0  # capacity is drawn up to this many times the highest demand


def over_time(named: Named, axis: str = SECONDS) -> Iterator[str]:
    """Yield demand and capacity, devices, accuracy, violations; ``axis`` labels the time axis."""
    width = f"{named[0][1].width_s:g} s"
    yield section(
        "Demand and capacity",
        f"Queries created (the thin line) and the capacity of the plan in force, per {width}. "
        f"{_off_the_chart(named)}".strip(),
        _demand(named, axis),
    )
    yield section(
        "Devices",
        "Devices that the plan in force uses.",
        _chart(named, axis, "devices", lambda each: each.devices),
    )
    yield section(
        "Accuracy",
        f"Mean over the leaves that ended in time, per {width}.",
        _shares(named, axis, "accuracy, %", lambda each: each.accuracy, zero=False),
    )
    yield section(
        "Violations",
        f"Share of the queries that ended within {width} and were late, dropped in any part, "
        "failed or refused.",
        _shares(named, axis, "violations, % of queries", lambda each: each.violation, zero=True),
    )


def latencies(named: Named, slo_s: float) -> str:
    """Return the distribution of latencies, with the SLO marked."""
    lines = [
        ChartLine(
            name, css(at), [(0.0, 0.0), *((s * 1e3, 100 * share) for s, share in each.latency)]
        )
        for at, (name, each) in enumerate(named)
    ]
    labels = ChartLabels(
        x="milliseconds from the query's time stamp to its answer",
        y="answered within, % of queries",
        about="Distribution of latencies",
    )
    slo_ms = slo_s * 1e3
    longest = max((each.latency[-2][0] for _, each in named if each.latency), default=slo_s)
    drawn = line_chart(
        lines, labels, rules=[UprightLine(slo_ms, f"SLO {slo_ms:g} ms")], height=300.0,
        holds=(100.0,),
        x_most=max(min(longest * 1e3, BEYOND * slo_ms), 1.1 * slo_ms),
    )  # fmt: skip
    return section(
        "Latency",
        "The share of all queries that were answered within a given time, incomplete answers "
        "included. The rest was refused, dropped or lost, or took longer than is shown.",
        drawn,
    )


def given_up_table(named: Named) -> str:
    """Return a table of the items given up, by task and reason."""
    keys = sorted({key for _, each in named for key in each.bad})
    most = max((n for _, each in named for n in each.bad.values()), default=1)
    rows = (
        [text(task or "-"), text(why.replace("_", " ")),
         *(bar(f"{each.bad.get((task, why), 0):,}", each.bad.get((task, why), 0) / most)
           for _, each in named)]
        for task, why in keys
    )  # fmt: skip
    content = table(("task", "reason", *(name for name, _ in named)), rows, texts=2)
    return section(
        "Given up, by task and reason",
        "Items, each once where it ended; a refused query is one, whatever it would have made.",
        content if keys else "<p>Nothing was given up.</p>",
    )


def _demand(named: Named, axis: str) -> str:
    first = named[0][1]
    demand = ChartLine("demand", "demand", list(zip(first.ends_s, first.demand_qps, strict=True)))
    most = _drawn_qps(named)
    lines = [
        ChartLine(f"capacity, {name}", css(at), _points(each, _below(each, most)), steps=True)
        for at, (name, each) in enumerate(named)
    ]
    labels = ChartLabels(x=axis, y="queries/s", about="Demand and capacity over time")
    return line_chart([*lines, demand], labels)


def _drawn_qps(named: Named) -> float:
    """Return the highest capacity that is drawn: one fast policy must not flatten the demand."""
    return ABOVE * max(named[0][1].demand_qps, default=0.0)


def _below(each: TimeSeries, most: float) -> list[float | None]:
    return [None if value is None else min(value, most) for value in each.capacity_qps]


def _off_the_chart(named: Named) -> str:
    """Return a sentence on the capacities that are drawn at the edge; "" if there are none."""
    highest = ((name, max((v or 0.0 for v in each.capacity_qps), default=0.0))
               for name, each in named)  # fmt: skip
    above = [f"{name} {qps:,.0f}" for name, qps in highest if qps > _drawn_qps(named)]
    if not above:
        return ""
    return (
        "Capacities beyond the chart, in queries/s, are drawn at its upper edge: "
        f"{', '.join(above)}."
    )


def _chart(named: Named, axis: str, what: str, values: Values) -> str:
    """Draw values that hold until the next one."""
    lines = [
        ChartLine(name, css(at), _points(each, values(each)), steps=True)
        for at, (name, each) in enumerate(named)
    ]
    return line_chart(lines, ChartLabels(x=axis, y=what, about=f"{what} over time"))


def _shares(named: Named, axis: str, what: str, shares: Values, *, zero: bool) -> str:
    """Draw shares as percentages; the axis spans a point at least, and ends at 100."""
    lines = [
        ChartLine(name, css(at), _points(each, _percent(shares(each))))
        for at, (name, each) in enumerate(named)
    ]
    highest = max((y for line in lines for _, y in line.points if y is not None), default=100.0)
    labels = ChartLabels(x=axis, y=what, about=f"{what} over time")
    holds = (1.0,) if zero else (highest - 1.0, highest)
    return line_chart(lines, labels, zero=zero, holds=holds)


def _points(each: TimeSeries, values: Sequence[float | None]) -> list[Point]:
    return list(zip(each.ends_s, values, strict=True))


def _percent(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else 100 * value for value in values]

"""Render a comparison of policies as an HTML page: figures, differences, time series, drops."""

from collections.abc import Callable, Iterator

from headrace.html.charts import ChartLabels, Spot, spot_chart
from headrace.html.page import css, legend, number, page, section, setting, table, text
from headrace.html.time_series_page import given_up_table, latencies, over_time
from headrace.results.statistics import Mean
from headrace.simulation.comparison import Comparison
from headrace.simulation.comparison_text import COLUMNS, comparison_notes, figure_text


def comparison_page(made: Comparison, arrivals: str) -> str:
    """Return the page; ``arrivals`` names their source."""
    name = made.file.pipeline.name
    named = [(policy, played[0].recording) for policy, played in made.runs.items()]
    body = [
        legend(list(made.runs)),
        _pareto(made),
        *_tables(made),
        *over_time(named),
        latencies(named, made.file.pipeline.slo_s),
        given_up_table(named),
    ]
    return page(
        f"{name}: {len(made.runs)} policies" if len(made.runs) > 1 else name,
        _lead(made, arrivals),
        body,
        setting(),
    )


def _lead(made: Comparison, arrivals: str) -> Iterator[str]:
    file, first = made.file, next(iter(made.runs.values()))[0]
    devices = ", ".join(f"{count} x {device}" for device, count in file.cluster.devices)
    yield (
        f"Simulated: {file.path.name}, SLO {file.pipeline.slo_s * 1e3:g} ms, {devices}; "
        f"{first.row['queries']:,} queries from {arrivals}; "
        f"{'seed' if len(made.seeds) == 1 else 'seeds'} {', '.join(map(str, made.seeds))}."
    )
    yield from (f"{note[0].upper()}{note[1:]}." for note in comparison_notes(made))
    if len(made.seeds) > 1:
        yield f"Series, latencies and what was given up are those of seed {made.seeds[0]}."


def _pareto(made: Comparison) -> str:
    spots = [
        Spot("", "aside", 100 * (1 - each.row["violation"]), 100 * each.row["accuracy"])
        for each in (made.search.tried if made.search else ())
        if each.row["accuracy"] is not None
    ]
    for at, name in enumerate(made.runs):
        missed, right = made.mean(name, "violation"), made.mean(name, "accuracy")
        if missed is not None and right is not None:
            spots.append(
                Spot(
                    name, css(at), 100 * (1 - missed.value), 100 * right.value,
                    100 * (missed.half or 0.0), *[100 * (right.half or 0.0)] * 2,
                )
            )  # fmt: skip
    labels = ChartLabels(
        x="SLO attainment, % of queries complete and in time",
        y="accuracy of leaves in time, %",
        about="SLO attainment against accuracy",
    )
    about = "Up and to the right is better."
    if any(
        each.half is not None for each in (made.mean(n, "violation") for n in made.runs) if each
    ):
        about += " Bars are 95 % intervals of the mean over the seeds."
    if made.search is not None:
        about += " Small circles are the fixed choices that were tried for static-best."
    return section("SLO attainment against accuracy", about, spot_chart(spots, labels))


def _tables(made: Comparison) -> Iterator[str]:
    heads = ("policy", *(heading + _unit(unit) for _, heading, _, _, unit in COLUMNS))
    rows = [_row(name, made.mean, signed=False) for name in made.runs]
    yield section("Figures", _MEANINGS, table(heads, rows))
    others = [name for name in made.runs if name != made.against]
    if others:
        about = f"Less {made.against}."
        if len(made.seeds) > 1:
            about += " Bold: the 95 % interval of the paired differences leaves out 0."
        rows = [_row(name, made.difference, signed=True) for name in others]
        yield section("Differences", about, table(heads, rows))


_MEANINGS = (
    "Violation: queries that were not answered completely and in time. Of branches: items given up "
    "or late among all that ended. Yield: SLO attainment x accuracy. Late, dropped, refused: of "
    "queries."
)


def _row(name: str, figure: Callable[[str, str], Mean | None], *, signed: bool) -> list[str]:
    cells = [text(name)]
    for key, _, factor, decimals, _ in COLUMNS:
        found = figure(name, key)
        shown = figure_text(found, factor, decimals, "", signed=signed)
        cells.append(number(shown, strong=signed and found is not None and found.certain))
    return cells


def _unit(unit: str) -> str:
    return f", {unit}" if unit else ""

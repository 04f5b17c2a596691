"""Format a demo's report as text and tables."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.cells import ms, percent
from headrace.demo.demo_report import DemoPart, DemoReport
from headrace.results.tally import Tally
from operators.outcomes import OUTCOMES
from profiles.path_accuracy import gap_text
from schemas.variant_id import variant_key

BAR = 30  # characters for the longest step


def shown(report: DemoReport) -> Any:
    """Return the whole report as a rich renderable."""
    parts: list[Text | Table] = [Text(""), Text(title(report), style="bold")]
    parts += [_outcomes(report), Text("")]
    parts += [Text("Which variants did the work (share of each task's branches)")]
    parts += [variants((*report.parts, report.whole)), Text("")]
    parts += [Text("Where the time went (mean of answered queries)"), _steps(report)]
    parts += [Text(line) for line in reasons(report.total)]
    parts += [Text(""), *(Text(line) for line in (*accuracy(report), *conditions(report)))]
    return Group(*parts)


def title(report: DemoReport) -> str:
    """Return the result in one line."""
    answered, queries = report.total.counts["answered"], report.total.queries
    return (
        f"{answered} of {queries} queries answered in time "
        f"({percent(answered / queries if queries else None)}), "
        f"{answered / report.conditions.seconds:.1f} per second; {report.total.counts['lost']} lost"
    )


def _outcomes(report: DemoReport) -> Table:
    columns = [*report.parts, report.whole]
    table = headed(columns)
    table.add_row("demand", *(_rate(part) for part in columns))
    table.add_row("devices", *(_devices(part) for part in columns))
    for what in OUTCOMES:
        table.add_row(what, *(str(part.tally.counts[what]) for part in columns))
    for name, cell in MEASURES.items():
        table.add_row(name, *(cell(part.tally) for part in columns))
    table.add_row("right and in time", *(percent(part.score) for part in columns))
    return table


def headed(parts: Sequence[DemoPart]) -> Table:
    """Return an empty table with a column for each part, headed by name and policy."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for part in parts:
        table.add_column(f"{part.name}\n{part.policy}", justify="right")
    return table


def _rate(part: DemoPart) -> str:
    return f"{part.tally.queries / part.seconds:.1f}/s" if part.seconds else "-"


def _devices(part: DemoPart) -> str:
    return "-" if part.devices is None else f"{part.devices:.1f}"


def attainment(part: Tally) -> str:
    """Return the SLO attainment as text."""
    return percent(part.slo_attainment)


MEASURES: Mapping[str, Callable[[Tally], str]] = {
    "SLO attainment": attainment,
    "latency p50": lambda part: ms(part.metrics.latency_ms(0.5)),
    "latency p95": lambda part: ms(part.metrics.latency_ms(0.95)),
    "latency p99": lambda part: ms(part.metrics.latency_ms(0.99)),
    "parts right": lambda part: percent(part.accuracy.parts if part.accuracy else None),
    "whole right": lambda part: percent(part.accuracy.whole if part.accuracy else None),
}


def variants(parts: Sequence[DemoPart]) -> Table:
    """Return the table of variant shares by part."""
    table = headed(parts)
    seen = {
        (task, name): None for part in parts for task in part.shares for name in part.shares[task]
    }
    for task, name in seen:
        shares = (part.shares.get(task, {}).get(name) for part in parts)
        table.add_row(
            variant_key(task, name), *("" if each is None else percent(each) for each in shares)
        )
    return table


def _steps(report: DemoReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    longest = max((step.mean_ms for step in report.steps), default=0.0)
    for step in report.steps:
        length = round(BAR * max(0.0, step.mean_ms) / longest) if longest > 0 else 0
        bar = Text("#" * length, style="cyan")
        table.add_row(Text(step.what), f"{step.mean_ms:7.2f} ms", f"{100 * step.share:5.1f} %", bar)
    return table


def reasons(total: Tally) -> list[str]:
    """Return the reasons of unanswered queries with their counts, eight at most."""
    return [f"{count} x {reason}" for reason, count in list(total.reasons.items())[:8]]


def accuracy(report: DemoReport) -> list[str]:
    """Return the measured accuracy beside the profile's prediction; [] without one of them."""
    told, expected = report.total.accuracy, report.expected
    if told is None or told.parts is None or expected is None:
        return []
    return [
        f"accuracy of what was answered: {percent(told.parts)} measured, "
        f"{percent(expected.by_paths)} expected by measured paths, "
        f"{percent(expected.by_products)} by products of variants",
        gap_text(expected.gap),
    ]


def conditions(report: DemoReport) -> list[str]:
    """Return the conditions that the figures depend on."""
    at, change = report.conditions, report.change
    lines = []
    if change is not None and change.took_ms is not None:
        lines.append(
            f"policy {change.before} -> {change.after} by command over Kafka: in force as plan "
            f"{change.epoch} after {change.took_ms:.0f} ms"
        )
    elif change is not None:
        lines.append(f"the command to apply policy {change.after} had no result")
    lines += [
        f"Poisson load of {load_text(report)} for {at.seconds:g} s, seed {at.seed}, "
        f"{at.distinct_inputs} distinct inputs; {at.warm_up} warm-up queries before it are not "
        f"counted; a query left at most {at.behind_ms:.0f} ms behind its time",
        "right and in time: share of the parts of all queries; devices: in use, on average; "
        f"latency: CreateTime of the query to the answer; machine: {at.machine}",
    ]
    lines += [f"still there: {process}" for process in at.left]
    return lines


def load_text(report: DemoReport) -> str:
    """Return the load as text."""
    at = report.conditions
    if at.hardware_qps is None:
        return f"{at.rate_qps:g} queries/s"
    return (
        f"{at.rate_qps:.1f} queries/s on average and {at.peak_qps:.0f} at the peak (the most "
        f"accurate variants carry {at.hardware_qps:.0f} on all devices, by the profile)"
    )

"""A demo's report for a person."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.demo_report import DemoReport
from headrace.loading import ms, share
from headrace.outcomes import OUTCOMES, Tally

BAR = 30  # characters for the longest step


def shown(report: DemoReport) -> Any:
    """The whole report, for rich."""
    parts: list[Text | Table] = [Text(""), Text(title(report), style="bold")]
    parts += [_outcomes(report), Text("")]
    parts += [Text(line) for line in shares(report)]
    parts += [Text(""), Text("Where the time went (mean of answered queries)"), _steps(report)]
    parts += [Text(line) for line in reasons(report.total)]
    parts += [Text(""), *(Text(line) for line in conditions(report))]
    return Group(*parts)


def title(report: DemoReport) -> str:
    """The result in one line."""
    answered, queries = report.total.counts["answered"], report.total.queries
    return (
        f"{answered} of {queries} queries answered in time "
        f"({share(answered / queries if queries else None)}), "
        f"{answered / report.conditions.seconds:.1f} per second; {report.total.counts['lost']} lost"
    )


def _outcomes(report: DemoReport) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    columns = [*report.phases, ("all", report.total)]
    for name, _ in columns:
        table.add_column(name, justify="right")
    for what in OUTCOMES:
        table.add_row(what, *(str(part.counts[what]) for _, part in columns))
    for name, cell in MEASURES.items():
        table.add_row(name, *(cell(part) for _, part in columns))
    return table


def _attainment(part: Tally) -> str:
    return share(part.counts["answered"] / part.queries if part.queries else None)


MEASURES: Mapping[str, Callable[[Tally], str]] = {
    "SLO attainment": _attainment,
    "latency p50": lambda part: ms(part.p50_ms),
    "latency p95": lambda part: ms(part.p95_ms),
    "latency p99": lambda part: ms(part.p99_ms),
    "parts right": lambda part: share(part.accuracy.parts if part.accuracy else None),
    "whole right": lambda part: share(part.accuracy.whole if part.accuracy else None),
}


def shares(report: DemoReport) -> list[str]:
    """Which variants did the work."""
    return [
        f"{task}: " + ", ".join(f"{share(part)} {variant}" for variant, part in of_task.items())
        for task, of_task in report.shares.items()
    ]


def _steps(report: DemoReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    longest = max((step.mean_ms for step in report.steps), default=0.0)
    for step in report.steps:
        length = round(BAR * max(0.0, step.mean_ms) / longest) if longest > 0 else 0
        bar = Text("#" * length, style="cyan")
        table.add_row(Text(step.what), f"{step.mean_ms:7.2f} ms", f"{100 * step.share:5.1f} %", bar)
    return table


def reasons(total: Tally) -> list[str]:
    """Why queries were not answered."""
    return [f"{count} x {reason}" for reason, count in list(total.reasons.items())[:8]]


def conditions(report: DemoReport) -> list[str]:
    """What has to be known to judge the figures."""
    at = report.conditions
    lines = []
    change = report.change
    if change is not None and change.took_ms is not None:
        lines.append(
            f"policy {change.before} -> {change.after} by command over Kafka: in force as plan "
            f"{change.epoch} after {change.took_ms:.0f} ms"
        )
    elif change is not None:
        lines.append(f"the command to apply policy {change.after} had no result")
    lines += [
        f"Poisson load of {at.rate_qps:g} queries/s for {at.seconds:g} s, seed {at.seed}, "
        f"{at.distinct_inputs} distinct inputs; {at.warm_up} warm-up queries before it are not "
        f"counted; a query left at most {at.behind_ms:.0f} ms behind its time",
        f"latency: CreateTime of the query to the answer; machine: {at.machine}",
    ]
    lines += [f"still there: {process}" for process in at.left]
    return lines

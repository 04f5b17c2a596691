"""Format a comparison of policies as text and tables."""

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.cells import percent
from headrace.demo.demo_report import DemoPart
from headrace.demo.demo_text import accuracy, attainment, load_text, variants
from headrace.demo.policy_comparison import PolicyComparison

ROWS: Mapping[str, Callable[[DemoPart], str]] = {
    "right and in time": lambda part: percent(part.score),
    "parts right": lambda part: percent(part.tally.accuracy.parts if part.tally.accuracy else None),
    "SLO attainment": lambda part: attainment(part.tally),
    "devices": lambda part: "-" if part.devices is None else f"{part.devices:.1f}",
}


def shown(found: PolicyComparison) -> Any:
    """Return the comparison as a rich renderable."""
    parts: list[Text | Table] = [Text(""), Text(title(found), style="bold"), _table(found)]
    for policy, report in found.runs:
        parts += [Text(""), Text(f"{policy}: share of each task's branches"),
                  variants((*report.parts, report.whole))]  # fmt: skip
    parts += [Text(""), *(Text(line) for line in conditions(found))]
    return Group(*parts)


def title(found: PolicyComparison) -> str:
    """Return the scores and the best policy in one line."""
    said = ", ".join(f"{policy} {percent(report.whole.score)}" for policy, report in found.runs)
    return f"parts right and in time: {said}; best: {found.best or 'nobody knows'}"


def _table(found: PolicyComparison) -> Table:
    first = found.runs[0][1]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("policy")
    for part in (*first.parts, first.whole):
        table.add_column(f"{part.name}\n{_rate(part)}", justify="right")
    for name, cell in ROWS.items():
        for at, (policy, report) in enumerate(found.runs):
            cells = (cell(part) for part in (*report.parts, report.whole))
            table.add_row("" if at else name, policy, *cells)
    return table


def _rate(part: DemoPart) -> str:
    return f"{part.tally.queries / part.seconds:.0f}/s" if part.seconds else ""


def conditions(found: PolicyComparison) -> list[str]:
    """Return the conditions that the figures depend on."""
    lines = []
    for policy, report in found.runs:
        reasons = list(report.total.reasons.items())[:3]
        said = "; ".join(f"{count} x {reason}" for reason, count in reasons) or "nothing"
        lines.append(f"{policy}: {report.total.counts['late']} late; without an answer: {said}")
    first = found.runs[0][1]
    at = first.conditions
    lines += accuracy(first)[:1]
    lines += [
        f"each: Poisson load of {load_text(first)} for {at.seconds:g} s, seed {at.seed}, the same "
        f"arrivals and inputs; {at.warm_up} warm-up queries are not counted",
        f"parts right: of answered queries; machine: {at.machine}",
    ]
    return [*lines, *(f"still there: {process}" for process in found.left)]

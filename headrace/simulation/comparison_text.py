"""Render a comparison as text: figures with their intervals, and paired differences."""

from collections.abc import Callable, Sequence

from headrace.cells import columns
from headrace.results.statistics import Mean
from headrace.simulation.comparison import Comparison
from headrace.simulation.sweep import Label, label_text

# Key, heading, factor, decimals, unit.
COLUMNS = (
    ("violation", "violation", 100.0, 2, "%"),
    ("branch_violation", "of branches", 100.0, 2, "%"),
    ("accuracy", "accuracy", 100.0, 2, "%"),
    ("yield", "yield", 100.0, 2, "%"),
    ("devices_mean", "devices", 1.0, 1, ""),
    ("p50_ms", "p50 ms", 1.0, 0, ""),
    ("p99_ms", "p99 ms", 1.0, 0, ""),
    ("late", "late", 100.0, 2, "%"),
    ("dropped", "dropped", 100.0, 2, "%"),
    ("refused", "refused", 100.0, 2, "%"),
    ("usd_per_h", "$/h", 1.0, 3, ""),
    ("usd_per_1000_answers", "$/1000", 1.0, 5, ""),
)


def comparison_text(made: Comparison) -> str:
    """Return the tables of figures and differences, and their notes."""
    parts = [_table(made, made.mean, "policy", False)]
    if len(made.runs) > 1:
        head = f"against {made.against}"
        parts += ["", _table(made, made.difference, head, True)]
    return "\n".join([*parts, "", *comparison_notes(made)])


def sweep_text(found: Sequence[tuple[Label, Comparison]]) -> str:
    """Return the comparisons of a sweep, each below its swept values, or the only one."""
    return "\n\n".join(
        "\n".join([*([label_text(label)] if label else []), comparison_text(made)])
        for label, made in found
    )


def _table(
    made: Comparison, figure: Callable[[str, str], Mean | None], head: str, differences: bool
) -> str:
    """Return a row for each figure and a column for each policy, since policies are fewer."""
    names = [name for name in made.runs if not (differences and name == made.against)]
    rows = [[head, *names]]
    for key, heading, factor, decimals, unit in COLUMNS:
        if key in made.names:
            means = (figure(name, key) for name in names)
            cells = (figure_text(m, factor, decimals, unit, signed=differences) for m in means)
            rows.append([heading, *cells])
    return columns(rows)


def figure_text(
    found: Mean | None, factor: float, decimals: int, unit: str, *, signed: bool = False
) -> str:
    """Format a mean with its interval's half-width, as in "4.10 ±0.30%"; None as "-"."""
    if found is None:
        return "-"
    text = f"{found.value * factor:{'+' if signed else ''}.{decimals}f}"
    if found.half is not None:
        text += f" ±{found.half * factor:.{decimals}f}"
    return text + unit


def comparison_notes(made: Comparison) -> list[str]:
    """Return the notes on the figures: seeds, interval, warm-up, the choice of static-best."""
    count = len(made.seeds)
    if count == 1:
        notes = [f"one seed ({made.seeds[0]}): no confidence interval; add seeds with --seed"]
    else:
        notes = [f"mean of {count} seeds, ± half of the 95 % interval (Student)"]
        if len(made.runs) > 1:
            notes[0] += "; differences are paired by seed"
    row = next(iter(made.runs.values()))[0].row
    if "warm_up_s" in row:
        notes.append(f"the first {row['warm_up_s']:g} s are not counted")
    if made.search is not None:
        chosen = ", ".join(f"{n} x {key}" for key, n in made.search.best.replicas.items())
        notes.append(
            f"static-best: {chosen}; the best of {len(made.search.tried)} fixed choices that were "
            "tried on these arrivals"
        )
    return notes

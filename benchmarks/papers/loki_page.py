"""Render docs/results/loki.md from the rows of ``loki_compare``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.papers.loki_compare import MAIN, PAPER, SCENES, Row
from headrace.results.statistics import Mean, difference, mean_of

NOTES = Path(__file__).parent / "loki_notes.md"  # the reading of the last run, and the history
OURS = "loki"
TITLES = {
    "traffic": "Traffic analysis, with admission",
    "traffic-open": "Traffic analysis, without admission",
    "social": "Social media as the authors' code plans it, with admission",
    "social-open": "Social media as the authors' code plans it, without admission",
    "social-third": "Social media, the paper's tree at a third of the rate, with admission",
    "social-third-open": "Social media, the paper's tree at a third of the rate, without admission",
}
RECORDED = {"traffic-recorded": "Traffic analysis", "social-recorded": "Social media"}

# The authors' code on the recorded arrivals, counted our way, in percent: queries, branches,
# accuracy; and the mean of workers, dummy tasks included (specs/loki.md, section 4).
AUTHORS: Mapping[str, Mapping[str, tuple[float, float, float, float]]] = {
    "traffic-recorded": {
        "Loki, per-task dropping": (80.4, 15.1, 96.22, 18.6),
        "Loki, rerouting, beta 1.05": (78.8, 13.3, 96.02, 18.7),
        "Loki, last-task dropping": (94.0, 62.7, 96.19, 18.6),
        "Loki, no dropping": (100.0, 88.9, 96.22, 13.1),
        "InferLine": (96.1, 50.5, 99.67, 18.6),
        "Proteus": (81.8, 60.3, 90.87, 19.9),
    },
    "social-recorded": {
        "Loki, per-task dropping": (39.1, 6.8, 95.72, 14.7),
        "Loki, rerouting": (39.1, 7.0, 95.72, 14.7),
        "InferLine": (53.4, 35.5, 99.55, 14.1),
        "Proteus": (29.8, 29.8, 82.22, 19.7),
    },
}

Value = Callable[[Row], float]
Column = tuple[str, Value, float, int]  # heading, value, factor, decimals
COLUMNS: tuple[Column, ...] = (
    ("queries, %", lambda row: row.violation, 100, 2),
    ("branches, %", lambda row: row.branch_violation, 100, 2),
    ("accuracy, %", lambda row: row.accuracy, 100, 2),
    ("yield, %", lambda row: row.yielded, 100, 2),
    ("devices", lambda row: row.devices, 1, 1),
    ("refused, %", lambda row: row.refused, 100, 2),
)
PAIRED = tuple(COLUMNS[at] for at in (0, 2, 3))


def page(rows: Sequence[Row]) -> str:
    """Return the page, without the scenes that were not run."""
    found = Played(rows)
    head = HEAD.format(
        commit=" and ".join(dict.fromkeys(row.commit for row in rows)),
        day=datetime.now(UTC).date(),
        queries=", ".join(found.queries(scene) for scene in MAIN),
    )
    notes = NOTES.read_text(encoding="utf-8").partition("## History")
    parts = [
        head, notes[0], *_scenes(found), *_beside_authors(found), *_ablations(found),
        *_missing(found), SETTING, notes[1] + notes[2],
    ]  # fmt: skip
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


class Played:
    """The recorded rows by scene and policy, by seed."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[str, str], list[Row]] = {}
        for row in sorted(rows, key=lambda each: each.seed):
            self._rows.setdefault((row.scene, row.policy), []).append(row)

    def of(self, scene: str, policy: str) -> list[Row]:
        """Return the rows of a policy in a scene."""
        return self._rows.get((scene, policy), [])

    def policies(self, scene: str) -> list[str]:
        """Return the policies of a scene that were played, in its order."""
        return [name for name in SCENES[scene].policies if self.of(scene, name)]

    def queries(self, scene: str) -> str:
        """Return the number of queries of a scene, on average, as text."""
        rows = self.of(scene, OURS)
        mean = sum(row.queries for row in rows) / len(rows) if rows else 0
        return f"{scene} {mean:,.0f}"

    def missing(self, scene: str, seeds: int) -> list[str]:
        """Return the policies of a scene with fewer seeds than ``seeds``."""
        counts = {name: len(self.of(scene, name)) for name in SCENES[scene].policies}
        return [f"`{name}` ({n})" for name, n in counts.items() if n < seeds]

    def paired(self, policy: tuple[str, str], against: tuple[str, str], value: Value) -> Mean:
        """Return the mean difference of two policies, over the seeds that both have."""
        mine, others = (
            {row.seed: value(row) for row in self.of(*key)} for key in (policy, against)
        )
        seeds = sorted(mine.keys() & others.keys())
        return difference([mine[s] for s in seeds], [others[s] for s in seeds])


def _scenes(found: Played) -> Iterator[str]:
    for scene, title in TITLES.items():
        names = found.policies(scene)
        if OURS not in names:
            continue
        yield f"## {title}"
        yield _figures(found, scene, names)
        yield f"Difference to `{OURS}`, points, paired by seed (**bold**: interval excludes 0):\n"
        yield _differences(found, [(scene, name) for name in names if name != OURS], (scene, OURS))


def _beside_authors(found: Played) -> Iterator[str]:
    yield BESIDE
    for scene, title in RECORDED.items():
        names = found.policies(scene)
        whose = "our rows, then the authors'" if names else "the authors'"
        yield f"{title}, no admission; {whose}:"
        theirs = [_line(name, cells) for name, cells in _authors(scene)]
        yield "\n".join([_figures(found, scene, names), *theirs])


def _authors(scene: str) -> Iterator[tuple[str, list[str]]]:
    for name, (queries, branches, accuracy, devices) in AUTHORS[scene].items():
        gained = (100 - queries) * accuracy / 100
        yield (
            f"authors: {name}",
            [f"{queries:.1f}", f"{branches:.1f}", f"{accuracy:.2f}", f"{gained:.2f}",
             f"{devices:.1f}", "0", "1"],
        )  # fmt: skip


def _ablations(found: Played) -> Iterator[str]:
    for scene, text in (("traffic-rules", RULES), ("traffic-other", OTHER_RULES)):
        rules = found.policies(scene)
        if rules:
            yield text
            yield _figures(found, scene, rules, extra=("traffic", OURS))
            yield f"Difference to `{OURS}`, points, over the seeds that both have:"
            yield _differences(found, [(scene, name) for name in rules], ("traffic", OURS))
    steps = found.policies("traffic-dropping")
    if steps:
        yield DROPPING
        yield _figures(found, "traffic-dropping", steps, extra=("traffic", PAPER))


def _missing(found: Played, seeds: int = 3) -> Iterator[str]:
    lines = [
        f"- {scene}: {', '.join(short)}"
        for scene in SCENES
        if (short := found.missing(scene, seeds))
    ]
    if lines:
        yield MISSING.format(seeds=seeds) + "\n" + "\n".join(lines)


# ---------------------------------------------------------------------- tables


def _figures(
    found: Played, scene: str, names: Sequence[str], extra: tuple[str, str] | None = None
) -> str:
    keys = [*([extra] if extra and found.of(*extra) else []), *((scene, name) for name in names)]
    lines = [_line("policy", [*(column[0] for column in COLUMNS), "seeds"])]
    lines.append("| --- " * (len(COLUMNS) + 2) + "|")
    for key in keys:
        rows = found.of(*key)
        cells = [_cell(mean_of([column[1](row) for row in rows]), column) for column in COLUMNS]
        lines.append(_line(f"`{key[1]}`", [*cells, str(len(rows))]))
    return "\n".join(lines)


def _differences(found: Played, keys: Sequence[tuple[str, str]], against: tuple[str, str]) -> str:
    lines = [_line("policy", [column[0] for column in PAIRED])]
    lines.append("| --- " * (len(PAIRED) + 1) + "|")
    for key in keys:
        means = [(found.paired(key, against, column[1]), column) for column in PAIRED]
        cells = [
            f"**{_cell(mean, column, '+')}**" if mean.certain else _cell(mean, column, "+")
            for mean, column in means
        ]
        lines.append(_line(f"`{key[1]}`", cells))
    return "\n".join(lines)


def _cell(mean: Mean, column: Column, sign: str = "") -> str:
    _, _, factor, decimals = column
    text = f"{mean.value * factor:{sign}.{decimals}f}"
    return text if mean.half is None else f"{text} ± {mean.half * factor:.{decimals}f}"


def _line(head: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([head, *cells])} |"


# ---------------------------------------------------------------------- text

HEAD = """\
# Loki: results

Made by `python -m benchmarks.papers.loki DATA_DIR OUT_DIR --compare --page docs/results/loki.md`
of runs at commit {commit}; page written {day}. Equal runs give equal figures on any machine.

The comparison is that of Loki's evaluation (HPDC 2024, sections 6.2 and 6.3) on stand-in traces of
five minutes, simulated with the nodes, policies and controller that run live. `DATA_DIR` is the
folder of the Loki data, which is for comparison only and not part of this repository. `loki-paper`
differs from the paper [as listed here](../reference/policies.md#differences-from-the-papers).

A seed draws the arrivals (Poisson, at the trace's rates), the service times (by the quantiles of
the authors' profile), fan-out and hops; they are equal for all policies. Figures are means over
seeds, ± half of the 95 % interval (Student). Queries on average: {queries}.

* *queries*: queries that were not complete and in time, including refused ones.
* *branches*: branches that were given up or late. A query that is refused or dropped before the
  first task branches counts as one branch, so this column flatters a policy that gives up early.
* *accuracy*: over leaves in time. *yield*: (100 - queries) x accuracy.
* `inferline`, `proteus`: as Loki's evaluation configures them (EWMA, per-task dropping).
* `+ rules`: with the estimator (and its headroom), dropping, quantiles and `paced` of `loki`, so
  that only planning and its routing differ.
* `static-best`: the fixed choice with the best yield, found with the trace's rates known.
"""

BESIDE = """\
## Beside the authors' code

The authors' code (their simulator, commit e6bb80c, counted our way) ran on the recorded arrivals
with constant service times (p50). Our rows in this section have both as well; seeds draw
fan-out and hops only. [What differs](#what-differs-from-the-authors-setting) lists the other
differences.
"""

MISSING = """\
## Not run

Runs are simulated by seed, the most important scenes first. The same command continues with the
rest. These have fewer than {seeds} seeds (number of seeds in brackets):
"""

RULES = """\
## Single rules of `loki`

Traffic analysis with admission: `loki` with one of its rules replaced by that of `loki-paper`, and
its dropping by the per-task rule.
"""

OTHER_RULES = """\
## Other rules and headroom

`headroom` multiplies the demand that the plan is made for.
"""

DROPPING = """\
## Dropping under the paper's rules

Traffic analysis with admission: `loki-paper` with each rule of dropping. In the paper violations
fall in the order none > last task > per task > rerouting (`reroute-paper`).
"""

SETTING = """\
## What differs from the authors' setting

| | here | the authors' code |
| --- | --- | --- |
| traffic | the paper's full tree, all tasks planned | gender recognition: one fixed device |
| devices | 20 for all tasks | 18, and one each for the sink and gender recognition |
| admission | refuses beyond the plan's capacity (a violation); or none | none |
| hops | 0.3 to 6 ms, 1.4 ms in plans; none on social as coded | none |
| plans | every 10 s, at once if demand jumps or falls; a solve takes 200 ms | every 1 or 10 s |
| first hop | by the routing table | by queue length |
| Proteus | exact MILP, gap 1e-6 | gap 0.5, target lowered in steps of 0.05 |
| service times | the profile's p50, p90, p95; p99 (not measured) equals p95 | p50 |
"""

"""Write docs/results/peers.md from the rows of all rounds."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from benchmarks.peers.measure import CAPACITY, Row
from benchmarks.peers.systems import SYSTEMS
from benchmarks.rig import ROOT

Lines = Mapping[str, Mapping[str, int]]  # of user code, by workload and system
OURS, HTTP = "headrace", "HTTP"
NOTES = ROOT / "benchmarks" / "peers" / "notes.md"  # what decides the rows of any run, and history
WITHIN = 1.5  # of the best: p50 at low load

UNPLACED = "When and on which machine stands under [history](#history)"
HEAD = """\
# Beside Ray Serve and MLServer

Made by `python -m benchmarks.peers --record docs/results/rows/peers.jsonl --page
docs/results/peers.md` of rows measured at {commit}; page written {date}. {places}. Clients, systems
and broker share its cores.
Figures are medians over {rounds}, with the least and the largest in brackets. The systems ran one
after the other, and each round began with another system.

**Pipelines.** Both have two stages:

- `noop` passes 500 bytes on.
- `postcode` finds the digits of an envelope by connected components and reads them with an ONNX
  network; its models are those of `examples/postcode`.

Each system has two processes that run models, one thread per model and the same largest batches
(256 and 256; 8 envelopes, and 32 digits in the second stage of Headrace). It waits at most 1 ms for
a batch. Before the measurement every answer is checked for correctness.

**Systems:**

- **Headrace**: `headrace up` with one gateway. Its CPU includes the broker and all roles.
- **Ray Serve {ray}**: two deployments with `RAY_SERVE_THROUGHPUT_OPTIMIZED=1` (replicas take
  requests themselves, gRPC between them). Each has at most 64 requests in progress and 64 queued.
  The client's timeout is in `x-request-timeout-seconds` or gRPC's deadline.
- **MLServer {mlserver}** has no pipelines. *Two models*: the client calls one after the other.
  *One model*: one model runs both stages in one process, and there are two such processes. Nothing
  passes between stages then, which is an easier task.

**Load.** Capacity is the throughput of a closed loop of 32 clients. All other loads are open:
Poisson arrivals, the same for all systems. Each client gives up at the SLO (250 ms for noop, 500 ms
for postcode).

- Goodput counts answers within the SLO.
- Latency starts when a query was due. Quantiles are over all queries; those without an answer in
  time count as infinite (shown as -).
- CPU is that of all processes of a system, per answer.
"""

VERDICT = """\
## {name}: against the best peer

The best of a system's protocols counts. Headrace should be ahead or equal in every row, and its
p50 at the low load within {within:g} times the best. The first comparison leaves out MLServer's one
model; the second includes it. **Bold** rows miss.
"""


@dataclass(frozen=True, slots=True)
class Figure:
    """A row of the comparison: its title, its value in a ``Row``, and whether more is better."""

    title: str
    load: str
    value: Callable[[Row], float | None]
    more: bool
    within: float = 1.0


def page(rows: Sequence[Row], lines: Lines) -> str:
    """Return the page, which ends with the hand-written notes."""
    if not rows:
        return "nothing is measured\n"
    rounds = max(row.round for row in rows)
    places = [*dict.fromkeys(row.place for row in rows if row.place)]
    text = HEAD.format(
        places="Measured on " + " and ".join(places) if places else UNPLACED,
        commit=" and ".join(dict.fromkeys(row.commit for row in rows)),
        date=datetime.now(UTC).date(),
        rounds=f"{rounds} rounds" if rounds > 1 else "1 round",
        ray=_version("ray", "ray"), mlserver=_version("mlserver", "mlserver"),
    )  # fmt: skip
    parts = [text]
    for workload in dict.fromkeys(row.workload for row in rows):
        of = [row for row in rows if row.workload == workload]
        parts += [
            f"## {workload}: every figure\n\n" + "\n".join(_table(of, lines[workload])),
            VERDICT.format(name=workload, within=WITHIN)
            + "\n"
            + "\n".join(_verdict(of, lines[workload])),
        ]
    parts.append(NOTES.read_text())
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _version(file: str, package: str) -> str:
    pinned = (ROOT / "benchmarks" / "peers" / f"requirements-{file}.txt").read_text().splitlines()
    return next(line for line in pinned if line.startswith(f"{package}==")).partition("==")[2]


# ---------------------------------------------------------------------- every figure


def _table(rows: Sequence[Row], lines: Mapping[str, int]) -> list[str]:
    loads = [load for load in dict.fromkeys(row.load for row in rows) if load != CAPACITY]
    heads = ["", "served/s", "CPU ms", *(f"{load}: goodput/s, p50, p99, CPU ms" for load in loads)]
    table = [f"| {' | '.join([*heads, 'lines'])} |", "| --- " * (len(heads) + 1) + "|"]
    for system, protocol in dict.fromkeys((row.system, row.protocol) for row in rows):
        mine = [row for row in rows if (row.system, row.protocol) == (system, protocol)]
        flat = [row for row in mine if row.load == CAPACITY]
        cells = [
            f"{SYSTEMS[system].title}, {protocol}",
            _spread([row.served_per_s for row in flat]),
            _spread([row.cpu_ms for row in flat]),
            *(_load_cell([row for row in mine if row.load == load]) for load in loads),
            str(lines[system]),
        ]
        table.append(f"| {' | '.join(cells)} |")
    return table


def _load_cell(rows: Sequence[Row]) -> str:
    offered = statistics.median(row.offered_per_s or 0.0 for row in rows) if rows else 0.0
    values = (
        [row.served_per_s for row in rows], [row.p50_ms for row in rows],
        [row.p99_ms for row in rows], [row.cpu_ms for row in rows],
    )  # fmt: skip
    return f"{offered:.0f}/s offered: " + ", ".join(map(_spread, values))


def _spread(values: Sequence[float | None]) -> str:
    """Return median (least to largest); None is infinite."""
    known = sorted(value for value in values if value is not None)
    middle = median(values)
    if middle is None:
        return "-"
    whole = len(known) == len(values)
    most = _number(known[-1]) if whole else "-"
    spread = f" ({_number(known[0])} to {most})" if len(values) > 1 else ""
    return _number(middle) + spread


def median(values: Sequence[float | None]) -> float | None:
    """Return the median with None as infinity; None if it is infinite, or of nothing."""
    at_most = sorted(float("inf") if value is None else value for value in values)
    middle = statistics.median(at_most) if at_most else float("inf")
    return middle if middle < float("inf") else None


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# ---------------------------------------------------------------------- against the best peer


def compared(rows: Sequence[Row]) -> list[Figure]:
    """Return the figures to compare; the first rate is the low load."""
    loads = [load for load in dict.fromkeys(row.load for row in rows) if load != CAPACITY]
    rates = [load for load in loads if load.endswith("/s")]
    found = [
        Figure("throughput, closed loop (/s)", CAPACITY, lambda row: row.served_per_s, True),
        Figure("CPU ms a query, closed loop", CAPACITY, lambda row: row.cpu_ms, False),
    ]
    for load in loads:
        of = f"at {load}" + ("" if load in rates else " of its own capacity")
        low = load in rates[:1]
        found += [
            Figure(f"goodput (/s) {of}", load, lambda row: row.served_per_s, True),
            Figure(f"p50 (ms) {of}", load, lambda row: row.p50_ms, False, WITHIN if low else 1.0),
            Figure(f"p99 (ms) {of}", load, lambda row: row.p99_ms, False),
        ]
        if load in rates:
            found.append(Figure(f"CPU ms a query {of}", load, lambda row: row.cpu_ms, False))
    return found  # fmt: skip


def _verdict(rows: Sequence[Row], lines: Mapping[str, int]) -> list[str]:
    with_one = [row for row in rows if row.system != OURS]
    with_two = [row for row in with_one if row.system != "mlserver-one"]
    ours = [row for row in rows if row.system == OURS]
    sets = [
        (ours, with_two),
        (ours, with_one),
        ([r for r in ours if r.protocol == HTTP], [r for r in with_two if r.protocol == HTTP]),
    ]
    heads = ("figure", "Headrace / best peer", "ratio", "with MLServer's one model", "HTTP only")
    table = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for figure in compared(rows):
        values = [(best(a, figure), best(b, figure)) for a, b in sets]
        (mine, peer), *others = values
        title = figure.title if is_met(figure, mine, peer) else f"**{figure.title}**"
        shown = [_ratio(*pair) for pair in others]
        table.append(
            f"| {title} | {_value(mine)} / {_value(peer)} | {_ratio(mine, peer)} "
            f"| {' | '.join(shown)} |"
        )
    peers = {system: lines[system] for system in ("ray", "mlserver", "mlserver-one")}
    fewest = min(peers["ray"], peers["mlserver"])
    title = "lines of user code"
    table.append(
        f"| {title if lines[OURS] <= fewest else f'**{title}**'} | {lines[OURS]} / {fewest} "
        f"| {lines[OURS] / fewest:.2f} | {lines[OURS] / min(peers.values()):.2f} | |"
    )
    return table


def best(rows: Sequence[Row], figure: Figure) -> float | None:
    """Return the best median over systems and protocols; None: no value, or an infinite one."""
    medians = []
    for key in dict.fromkeys((row.system, row.protocol) for row in rows):
        mine = [r for r in rows if (r.system, r.protocol) == key and r.load == figure.load]
        middle = median([figure.value(row) for row in mine])
        if middle is not None:
            medians.append(middle)
    if not medians:
        return None
    return max(medians) if figure.more else min(medians)


def is_met(figure: Figure, mine: float | None, peer: float | None) -> bool:
    """Return whether Headrace is ahead, or within what the figure allows; False without a figure
    of its own: two figures that are both infinite cannot be compared."""
    if mine is None or peer is None:
        return mine is not None
    return mine >= peer if figure.more else mine <= figure.within * peer


def _value(value: float | None) -> str:
    return "-" if value is None else _number(value)


def _ratio(mine: float | None, peer: float | None) -> str:
    return "-" if not mine or not peer else f"{mine / peer:.2f}"

"""Render docs/results/ramsis.md from the results of ``ramsis_compare`` and ``ramsis_nodes``."""

import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from benchmarks.papers.ramsis_compare import (
    CENTRAL,
    DROPPING,
    DROPPING_BY_TURN,
    DROPPING_IN_RUNS,
    JELLYFISH,
    ONE_BY_ONE,
    PAPER,
    RUNS,
    STATIC,
    STATIC_BY_TURN,
    SWITCHING,
    VARIABLE,
    Row,
)
from benchmarks.papers.ramsis_nodes import MOST_SEEDS, SECONDS
from benchmarks.papers.ramsis_nodes import ON as NODES
from headrace.results.statistics import Mean, difference, mean_of

CONSTANT, TRACE = "constant", "trace"
SEEN = 0.0005  # points: smaller values are shown as 0
APART = 0.01  # points of violation: smaller differences are named in the table only
SETTING = (PAPER, JELLYFISH, SWITCHING, STATIC)
OURS = (RUNS, ONE_BY_ONE, VARIABLE, CENTRAL)
STATICS = (STATIC, STATIC_BY_TURN, DROPPING, DROPPING_BY_TURN, DROPPING_IN_RUNS)

# Figures of the authors' code in percent: accuracy and violation by load (specs of the RAMSIS
# data), the same on the trace by workers, and the gains in the artifact's appendix.
Pair = tuple[float, float]
AUTHORS_CONSTANT: dict[int, tuple[Pair, Pair, Pair]] = {
    400: ((84.228, 0), (80.608, 0), (84.228, 0)),
    800: ((81.030, 0), (80.608, 0), (80.608, 0)),
    1200: ((78.724, 0), (73.004, 0), (73.004, 0)),
    1600: ((76.267, 0), (73.004, 0), (73.004, 0)),
    2000: ((74.905, 0.0017), (73.004, 0), (73.004, 0)),
    2400: ((73.376, 0), (73.004, 0), (73.004, 0)),
    2800: ((73.009, 0), (57.972, 0), (73.004, 0)),
    3200: ((64.679, 0.119), (57.972, 0), (57.972, 0)),
    3600: ((57.972, 14.0), (57.972, 38.3), (57.972, 38.3)),
    4000: ((57.972, 97.6), (57.972, 66.6), (57.972, 66.6)),
}
AUTHORS_TRACE: dict[int, tuple[Pair, Pair, Pair]] = {
    60: ((67.959, 17.86), (65.211, 20.27), (65.476, 18.34)),
    70: ((71.326, 0.029), (65.039, 3.01), (66.700, 0.074)),
    80: ((74.804, 0.000), (66.729, 0.025), (71.479, 0.079)),
}
GAINS = {
    (CONSTANT, JELLYFISH): (3.70, 15.04),
    (CONSTANT, SWITCHING): (1.84, 6.71),
    (TRACE, JELLYFISH): (5.70, 8.07),
    (TRACE, SWITCHING): (3.48, 4.63),
}


def page(rows: Sequence[Row], commit: str, missing: Sequence[str] = ()) -> str:
    """Return the page, without the ``missing`` parts, which it names; ``commit`` is the code's."""
    played = _Played(rows)
    head = HEAD.format(
        commit=commit,
        seeds=played.seeds(CONSTANT),
        traces=played.counted(TRACE, PAPER),
        day=datetime.now(UTC).date(),
        python=platform.python_version(),
        machine=platform.machine(),
    )
    not_run = [f"**Not run:** {', '.join(missing)} (load or workers).\n"] if missing else []
    return "\n".join([head, *not_run, *_setting(played), *_ours(played), *_nodes(played)])


def _setting(played: "_Played") -> Iterator[str]:
    """Yield the results in the artifact's setting, beside its figures."""
    yield SETTING_TEXT
    yield played.table(CONSTANT, "queries/s", SETTING, AUTHORS_CONSTANT)
    yield played.gains(CONSTANT)
    if played.seeds(TRACE):
        yield "On the trace:\n"
        yield played.table(TRACE, "workers", SETTING, AUTHORS_TRACE)
        yield played.gains(TRACE)
    yield DIFFERENCES


def _ours(played: "_Played") -> Iterator[str]:
    """Yield our policies and the tuned static choice."""
    yield OURS_TEXT
    for on, head in ((CONSTANT, "queries/s"), (TRACE, "workers")):
        if played.seeds(on):
            seeds = played.counted(on, CENTRAL)
            yield f"{TITLES[on]}, the static choices, accuracy / violation; seeds: {seeds}.\n"
            yield played.table(on, head, STATICS, {})
            yield f"{TITLES[on]}, ours:\n"
            yield played.table(on, head, OURS, {})
            yield f"{TITLES[on]}, ours minus the tuned static choice with dropping, points:\n"
            yield played.against(on, head, DROPPING, OURS)
    yield VERDICTS.format(apart=APART)
    yield played.verdicts([(RUNS, name) for name in STATICS])
    yield OTHER_VERDICTS
    yield played.verdicts([(name, DROPPING) for name in OURS[1:]])


def _nodes(played: "_Played") -> Iterator[str]:
    """Yield the nodes beside the bare queues."""
    if not played.seeds(NODES):
        return
    by_turn = (PAPER, RUNS, ONE_BY_ONE, VARIABLE, CENTRAL, STATIC_BY_TURN, DROPPING_BY_TURN)
    yield NODES_TEXT.format(seconds=SECONDS, most=MOST_SEEDS, fewest=played.fewest(NODES))
    yield played.table(NODES, "queries/s", by_turn, {})
    yield "Seeds of each:\n"
    yield played.seed_table(NODES, "queries/s", by_turn)
    yield "The bare queues, 30 s and all seeds:\n"
    yield played.table(CONSTANT, "queries/s", by_turn, {})
    yield played.speed()


class _Played:
    """The results by experiment, load or workers, and policy."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows: dict[tuple[str, int, str], list[Row]] = {}
        for row in sorted(rows, key=lambda each: each.seed):
            self._rows.setdefault((row.on, row.at, row.policy), []).append(row)

    def seeds(self, on: str) -> int:
        """Return the number of seeds of an experiment."""
        return max((len(rows) for key, rows in self._rows.items() if key[0] == on), default=0)

    def fewest(self, on: str) -> int:
        """Return the least number of seeds of a policy in an experiment."""
        return min((len(rows) for key, rows in self._rows.items() if key[0] == on), default=0)

    def seed_table(self, on: str, head: str, policies: Sequence[str]) -> str:
        """Return a table of the number of seeds."""
        lines = _header([head, *policies])
        for at in self._at(on):
            counts = [str(len(self._rows.get((on, at, policy), ()))) for policy in policies]
            lines.append(_line([str(at), *counts]))
        return "\n".join(lines) + "\n"

    def counted(self, on: str, policy: str) -> str:
        """Return the number of seeds as text, by workers or load if it differs."""
        counts = {at: len(self._rows.get((on, at, policy), ())) for at in self._at(on)}
        if len(set(counts.values())) == 1:
            return str(self.seeds(on))
        return ", ".join(f"{count} ({at})" for at, count in counts.items()) or "0"

    def _at(self, on: str) -> list[int]:
        return sorted({at for where, at, _ in self._rows if where == on})

    def _values(self, on: str, at: int, policy: str, of: Callable[[Row], float]) -> list[float]:
        return [100 * of(row) for row in self._rows.get((on, at, policy), ())]

    def table(
        self, on: str, head: str, policies: Sequence[str], authors: Mapping[int, tuple[Pair, ...]]
    ) -> str:
        """Return a table of accuracy and violation; ``authors`` adds the authors' figures."""
        theirs = [f"authors' {name}" for name in policies[:3]] if authors else []
        lines = _header([head, *policies, *theirs])
        for at in self._at(on):
            cells = [self._cell(on, at, policy) for policy in policies]
            cells += [f"{accuracy:.2f} / {late:g}" for accuracy, late in authors.get(at, ())]
            lines.append(_line([str(at), *cells]))
        return "\n".join(lines) + "\n"

    def _cell(self, on: str, at: int, policy: str) -> str:
        if (on, at, policy) not in self._rows:
            return "-"
        accuracy = mean_of(self._values(on, at, policy, _accuracy))
        violation = mean_of(self._values(on, at, policy, _violation))
        return f"{_told(accuracy)} / {_told(violation)}"

    def gains(self, on: str) -> str:
        """Return the accuracy gains of the paper's policy, aggregated as in the artifact."""
        heads = ["over", "mean gain", "seeds", "artifact", "largest gain", "seeds", "artifact"]
        lines = _header(heads)
        for other in (JELLYFISH, SWITCHING):
            # Only seeds that all policies have.
            by_seed = zip(*(self._gained(on, at, other) for at in self._at(on)), strict=False)
            gained = [(statistics.fmean(each), max(each)) for each in by_seed]
            cells = [other]
            for column, known in zip(zip(*gained, strict=True), GAINS[on, other], strict=True):
                spread = f"{min(column):.2f} to {max(column):.2f}"
                cells += [_told(mean_of(column)), spread, f"{known:.2f}"]
            lines.append(_line(cells))
        return "\n".join(lines) + "\n"

    def verdicts(self, pairs: Sequence[tuple[str, str]]) -> str:
        """Return a table of the constant loads at which a policy is better or worse than another,
        by the intervals of the differences."""
        lines = _header(
            ["policy", "against", "more right", "equal", "fewer right", "more violations"]
        )
        for policy, other in pairs:
            cells = [", ".join(loads) or "-" for loads in self._verdict(policy, other)]
            lines.append(_line([f"`{policy}`", f"`{other}`", *cells]))
        return "\n".join(lines) + "\n"

    def _verdict(self, policy: str, other: str) -> tuple[list[str], ...]:
        """Return the loads with more, as many and fewer right queries, and with more violations."""
        more: list[str] = []
        equal: list[str] = []
        fewer: list[str] = []
        late: list[str] = []
        for at in self._at(CONSTANT):
            apart = self._difference((CONSTANT, at), policy, other, _right)
            if apart is None or not apart.certain:
                equal.append(str(at))
            elif apart.value > 0:
                more.append(str(at))
            else:
                fewer.append(f"{at} ({apart.value:+.3f})")
            missed = self._difference((CONSTANT, at), policy, other, _violation)
            if missed is not None and missed.certain and missed.value >= APART:
                late.append(f"{at} ({missed.value:+.3f})")
        return more, equal, fewer, late

    def _gained(self, on: str, at: int, other: str) -> list[float]:
        mine, theirs = (self._values(on, at, name, _accuracy) for name in (PAPER, other))
        return [one - two for one, two in zip(mine, theirs, strict=True)]

    def against(self, on: str, head: str, other: str, policies: Sequence[str]) -> str:
        """Return a table of differences in accuracy, violation, and correct queries in time."""
        heads = [f"{policy}: {what}" for policy in policies for what in ("acc.", "viol.", "right")]
        lines = _header([head, *heads])
        for at in self._at(on):
            cells = [
                _signed(self._difference((on, at), policy, other, of))
                for policy in policies
                for of in (_accuracy, _violation, _right)
            ]
            lines.append(_line([str(at), *cells]))
        return "\n".join(lines) + "\n"

    def _difference(
        self, where: tuple[str, int], policy: str, other: str, of: Callable[[Row], float]
    ) -> Mean | None:
        """Return the mean difference over the seeds that both policies have."""
        mine, theirs = (
            {row.seed: 100 * of(row) for row in self._rows.get((*where, name), ())}
            for name in (policy, other)
        )
        seeds = [seed for seed in mine if seed in theirs]
        if not seeds:
            return None
        return difference([mine[seed] for seed in seeds], [theirs[seed] for seed in seeds])

    def speed(self) -> str:
        """Return the simulated queries per CPU second of the nodes, without solves, as text."""
        found = [
            row.queries / row.cpu_s
            for (on, _, _), rows in self._rows.items()
            for row in rows
            if on == NODES and row.cpu_s
        ]
        if not found:
            return ""
        return SPEED.format(
            runs=len(found), median=statistics.median(found), low=min(found), high=max(found)
        )


def _accuracy(row: Row) -> float:
    return row.accuracy


def _violation(row: Row) -> float:
    return row.violation


def _right(row: Row) -> float:
    return row.accuracy * (1 - row.violation)


def _told(mean: Mean) -> str:
    spread = f" ± {mean.half:.3f}" if mean.half and mean.half >= SEEN else ""
    return f"{mean.value:.3f}{spread}" if abs(mean.value) >= SEEN or spread else "0"


def _signed(mean: Mean | None) -> str:
    if mean is None:
        return "-"
    spread = f" ± {mean.half:.3f}" if mean.half and mean.half >= SEEN else ""
    return f"{mean.value:+.3f}{spread}" if abs(mean.value) >= SEEN or spread else "0"


def _header(cells: Sequence[str]) -> list[str]:
    return [_line(cells), _line(["---"] * len(cells))]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


TITLES = {CONSTANT: "Constant load", TRACE: "The trace"}

HEAD = """# RAMSIS, reproduced and compared

`python -m benchmarks.papers.ramsis DATA_DIR OUT_DIR --compare` plays and writes this page. RAMSIS
(EuroSys'24, doi 10.1145/3627703.3629565) chooses a model for every batch from a table solved
ahead; `docs/explanation/ramsis.md` describes how Headrace does. The benchmark plays the 9 image
models of the artifact with an SLO of 150 ms: 60 workers at constant load, and 60, 70 and 80 workers
on the artifact's Twitter trace (300 s: its 261 s, then its first 39 s again).

Commit {commit}, {day}, 2 shared {machine} cores, Python {python}. Seeds: {seeds} of 30 s at every
constant load; {traces} of the trace. All policies of a seed have the same arrivals.

A cell has the accuracy over the queries in time / violation, in percent: means over the seeds with
their 95 % interval (Student's t; none where all seeds agree).

These figures come from the bare queues of `benchmarks/papers/ramsis_queues.py`, **not from the
nodes**, because nodes have no central queue for the policies that the paper gives one. A batch
takes its planning latency (p95), and a hop takes no time. The last section compares the nodes with
the bare queues.
"""

SETTING_TEXT = """## In the paper's setting

- `ramsis-paper` serves round robin, and a batch takes the whole queue.
- Jellyfish+ and ModelSwitching choose a model and a largest batch for the load, and have one
  central queue (`benchmarks/papers/ramsis_baselines.py`).
- The tuned static choice is the fair baseline: the most accurate model that some largest batch
  keeps below 1 % in a trial of 60 s, with the best batch. If no model qualifies, it runs the choice
  of Jellyfish+. The trial has one central queue, also for the rows `round robin`, which serve the
  same choice by turn and may therefore miss more than a choice tried by turn would.

Nothing is dropped. At constant load the tables are those of the load. On the trace they are those
of the next higher load in steps of 200, for the arrivals of the last half second.
"""

DIFFERENCES = """What differs from the artifact, and why:

- ModelSwitching at 2800 queries/s is the artifact's shipped choice, mobilenet in batches of 3,
  which carries 0.6 % more than the load. In our trials of five minutes with six seeds it was below
  1 % once and at 1.0 to 12 % five times. By our trials the choice would be shufflenet.
- The artifact has one seed and leaves out queries that still wait after 30 s; here all count.
  The difference shows only in overload, at 3600 and 4000.
- The artifact draws batches from the random stream of the arrivals, so its policies do not get the
  same arrivals.
- On the trace the artifact's load estimate counts the next gap, which has not happened yet, and
  leaves out the current arrival. Ours counts all arrivals so far. In the first half second
  both divide by half a second.
- The paper's figures are of a prototype and higher; those here are the artifact's simulation.
"""

OURS_TEXT = """## Ours

- `ramsis` counts queries where the paper counts decisions. Ingress sends each worker in turn a run,
  several queries in a row, of the length that is best for the load. Ingress refuses a query if the
  next worker in turn would have no time for its run, as planned
  (`control/per_query/run_admission.py`). A refused query counts as a violation.
- `ramsis, one by one` is the same with plain round robin (`longest_run: 1`) and no admission.
- `ramsis-variable` is one by one as well, and may leave part of its queue.
- `ramsis, central queue` has one queue for all workers, in ingress, and tables of a pooled model
  (`control/policies/ramsis/central_queue.py`), the best of nine by a trial. Here the tuned static
  choice is a tenth candidate, and a trial takes 60 s.

All of them run live, the last one as `ramsis-central`.

If the table's batch would be late, ours run a rescue batch with the model and size of the lease,
and drop what that would not save. In runs and with a central queue, the lease has the model and
size that serve most of an overload; one by one, those that serve most within half of the SLO. On
the trace they begin with the table of the highest load. Runs keep their length while a table for a
load within 5 % has that length.

The tuned static choice gets the same. `dropping` drops what its batch would not save. Its model and
batch are tuned again with dropping, in trials of 60 s with the same way of serving: one central
queue, round robin, or the runs of `ramsis` with the same admission. If no choice stays below 1 %,
it takes the batch with the fewest violations.

"right" is the share of all queries that were in time and right.
"""

VERDICTS = """\
Constant loads (queries/s) at which `ramsis` is better or worse than each static choice. Differences
are in points; violations less than {apart:g} points apart count as equal.
"""
OTHER_VERDICTS = """\
The same for the others, against the tuned static choice with dropping and one central queue:
"""

NODES_TEXT = """## By the nodes

The nodes that serve live, in virtual time, with hops as on the local broker.

- Each run is the first {seconds:g} s of a seed. Seeds are added, from {fewest} up to {most}, until
  the intervals of accuracy and violation are half a point.
- Serving is round robin, and in runs under `ramsis`. Tables are for the load that is played, and
  plan for what three hops of 1.4 ms leave of the SLO.
- The static choices are those of trials on the bare queues, which have no hops: unlike the tables
  they are made for the whole SLO.
- With a central queue ingress sends each free worker a batch and receives its end, one hop each
  way.
- Workers rescue and drop as above, except under `ramsis-paper` and the static choice without
  dropping.
- Ingress refuses queries as it does live under `ramsis` and `ramsis, central queue`, and none under
  the others.
"""

SPEED = """\
Simulated queries per CPU second by the nodes, without solves; each run includes the start of
60 workers. Median of {runs} runs: {median:,.0f} ({low:,.0f} to {high:,.0f}), on a shared machine
beside other work. [Simulation](simulator.md) has the speed on an idle machine, pure and compiled.
"""

"""Compare the mix that ``--pick simulate`` takes with the best mix, in 20 cases.

Five models, each with the trace's sizes, with two normal distributions of sizes, and with an SLO of
1.2 times the paper's. The pick is the best of the ten mixes with the highest fluid bound, by 5,000
queries of one seed. The best mix is searched among all mixes within the budget by 10,000 queries of
another seed: by decreasing bound, a mix replaces the leader if it keeps the SLO at 1 % more than
the leader carries. A mix whose bound is below that is left out, since no run exceeds its bound by
more than ``FINITE``; so is a mix that an evaluated one contains, since fewer devices never carry
more. Finished cases are kept in ``OUT_DIR/picks.jsonl``, so that the table can be made in pieces.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from benchmarks.papers.kairos_cases import NORMALS, SLO_FACTORS, TRACE, case_file
from benchmarks.papers.kairos_climb import carries
from benchmarks.papers.kairos_compare import BUDGET, MODELS, TYPES
from benchmarks.row_file import RowFile
from control.policies.kairos.provisioning import Pool, Ranked, rank
from headrace.config.pipeline_file import PipelineFile
from headrace.config.policy_options import with_policies
from headrace.config.sizes_file import read_sizes
from headrace.planning.device_mix import MixRequest, pool_of, with_mix
from headrace.simulation.capacity_search import (
    LIKELY,
    LIKELY_STEP,
    PICK_QUERIES,
    WITHIN,
    CapacityRequest,
    capacity,
)

POLICY = "kairos"
PICK_AMONG = 10
PICK_SEED, BEST_SEED = 0, 1
BEST_QUERIES = 10_000
FINITE = 1.015  # what a run of so many queries may carry of its bound
MUST = 0.97
ALL_MIXES = 100_000
CASES = (TRACE, *NORMALS, *SLO_FACTORS)
HEADING = "## The pick, against the best mix"

Mix = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PickRow:
    """The pick and the best mix of a case, with what they carry in queries/s at the same seed."""

    model: str
    case: str
    pick: Mix
    pick_qps: float
    best: Mix
    best_qps: float
    place: int  # of the best mix in the ranking by the fluid bound, from 1
    evaluated: int  # mixes that were simulated to find the best

    @property
    def share(self) -> float:
        """The throughput of the pick over that of the best mix."""
        return self.pick_qps / self.best_qps


@dataclass(frozen=True, slots=True)
class Race:
    """The mix with the highest capacity, its capacity and that of the first mix in queries/s, and
    the simulated mixes."""

    leader: Ranked
    qps: float
    first_qps: float
    evaluated: tuple[Mix, ...]


def race(file: PipelineFile, mixes: Sequence[Ranked], request: CapacityRequest) -> Race:
    """Return the mix with the highest capacity: the first, unless a later one carries 1 % more."""

    def asked(mix: Ranked, start_qps: float) -> CapacityRequest:
        counts = {name: n for name, n in zip(TYPES, mix.counts, strict=True) if n}
        return replace(
            request, file=with_mix(file, counts), start_qps=start_qps, first_step=LIKELY_STEP
        )

    def carried(mix: Ranked, start_qps: float) -> float:
        found = capacity(asked(mix, start_qps)).best
        return found.qps if found else 0.0

    leader = mixes[0]
    first_qps = qps = carried(leader, LIKELY * leader.bound_qps)
    evaluated = [leader.counts]
    for mix in mixes[1:]:
        more = qps * WITHIN
        if mix.bound_qps * FINITE < more or any(_within(mix.counts, of) for of in evaluated):
            continue
        evaluated.append(mix.counts)
        if carries(asked(mix, more), more):
            leader, qps = mix, carried(mix, more)
    return Race(leader, qps, first_qps, tuple(evaluated))


def _within(mix: Mix, other: Mix) -> bool:
    return all(a <= b for a, b in zip(mix, other, strict=True))


def pick_row(out: Path, model: str, case: str) -> PickRow:
    """Return the row of a case: some minutes of one core."""
    file = with_policies(case_file(out, model, case), (POLICY,))
    pool: Pool = pool_of(file, MixRequest())[0]
    ranked = rank(pool, BUDGET, "fluid", ALL_MIXES).best
    asked = CapacityRequest(file=file, policy=POLICY, sizes=read_sizes(file, None)[0])
    pick = race(
        file, ranked[:PICK_AMONG], replace(asked, seed=PICK_SEED, queries=PICK_QUERIES)
    ).leader
    others = [each for each in ranked if each.counts != pick.counts]
    best = race(file, [pick, *others], replace(asked, seed=BEST_SEED, queries=BEST_QUERIES))
    return PickRow(
        model=model, case=case, pick=pick.counts, pick_qps=round(best.first_qps, 3),
        best=best.leader.counts, best_qps=round(best.qps, 3),
        place=ranked.index(best.leader) + 1, evaluated=len(best.evaluated),
    )  # fmt: skip


def picked(out: Path, models: Sequence[str], most: int, processes: int) -> Iterator[PickRow]:
    """Yield the rows of at most ``most`` cases that ``out`` does not have yet, and keep them."""
    record = recorded(out)
    known = {(each.model, each.case) for each in record.read()}
    left = ((m, c) for c in CASES for m in models if (m, c) not in known)
    now = list(islice(left, most))
    with ProcessPoolExecutor(processes) as pool:
        for row in pool.map(pick_row, [out] * len(now), *zip(*now, strict=True)) if now else ():
            record.append(row)
            yield row


def recorded(out: Path) -> RowFile[PickRow]:
    """Return the file of the cases that have ended."""
    return RowFile(out / "picks.jsonl", PickRow)


# ---------------------------------------------------------------------- the page

HEAD = f"""\
{HEADING}

Made by `python -m benchmarks.papers.kairos DATA_DIR OUT_DIR --picks` (`--cases N` runs N cases and
keeps them).

- The pick is the best of the ten mixes with the highest fluid bound, by {PICK_QUERIES:,} queries of
  one seed. `--pick simulate` searches the capacity of all ten; here a race finds the best: a mix
  replaces the leader if it keeps the SLO at 1 % more load.
- The best mix wins the same race among all mixes within the budget, by {BEST_QUERIES:,} queries of
  another seed.
- Each cell: the capacity of the pick relative to the best mix (below {MUST} **bold**), both mixes
  if they differ, and in brackets the place of the best mix in the ranking and the number of mixes
  simulated to find it.
- Normal distributions of sizes are limited to 1 to 1,000 items, in classes of 10.
"""


def section(rows: Sequence[PickRow]) -> str:
    """Return the section of the page."""
    by_case = {(row.model, row.case): row for row in rows}
    lines = [f"| sizes | {' | '.join(MODELS)} |", "| --- " * (len(MODELS) + 1) + "|"]
    for case in CASES:
        cells = [_cell(by_case.get((model, case))) for model in MODELS]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return HEAD + "\n" + "\n".join(lines) + "\n"


def _cell(row: PickRow | None) -> str:
    if row is None:
        return "not run"
    share = f"{row.share:.3f}" if row.share >= MUST else f"**{row.share:.3f}**"
    pick, best = ("+".join(map(str, mix)) for mix in (row.pick, row.best))
    mixes = pick if pick == best else f"{pick}, best {best}"
    return f"{share} on {mixes} (place {row.place}, {row.evaluated})"


def section_of(page: str) -> str:
    """Return the section about picks of a page, "" if it has none."""
    _, found, after = page.partition(HEADING)
    return found + after.partition("\n## ")[0] if found else ""


def with_section(page: str, text: str) -> str:
    """Return the page with its section about picks replaced, or added at the end."""
    before, found, after = page.partition(HEADING)
    if not found:
        return page.rstrip("\n") + "\n\n" + text
    _, next_heading, rest = after.partition("\n## ")
    return before + text + (next_heading + rest if next_heading else "")

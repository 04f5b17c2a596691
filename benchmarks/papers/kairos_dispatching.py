"""The section of docs/results/kairos.md about hops (K16) and several dispatchers (K18)."""

from collections.abc import Sequence

from benchmarks.papers.kairos_cases import DISPATCHERS, HOPS, SLOW_HOPS, SLOWER, TRACE, slower
from benchmarks.papers.kairos_claims import IDLE_ONLY, PARTS_OF, SHORT_SLO
from benchmarks.papers.kairos_compare import MODELS, Search
from benchmarks.papers.kairos_tables import lines_of, mean_qps, mix_text

HEAD = """\
## Hops between processes, and several dispatchers

**Lead (K16)**, one seed, on the mix ranked first. `with hops` is the capacity of `kairos` with hops
as on a local broker, relative to that without hops. `lost to idle devices` is what it loses there
if it sends to idle devices only, as in the paper (`lead: 0ms`): a device then idles for two hops
after each query. By arithmetic, at 2 ms and the mean size, the loss is 3 % of a base device's time
for rm2, 17 dien, 25 mtwnd, 33 wnd and 64 ncf. The SLO of ncf is 5 ms, which the hops of a query can
exceed alone, so ncf is also played in time that runs {slower} times slower (`slower`): a hop then
takes a tenth of its share of the SLO.

{leads}

**Several dispatchers (K18)**, rm2, one seed, on {times} times the mix ranked first. Each dispatcher
has an equal part of the queries and of the devices of each type. The paper splits large systems in
this way and does not state the cost; the project allows a loss of 3 %.

{parts}
"""


def dispatching_section(found: Sequence[Search]) -> str:
    """Return the section about hops and dispatchers."""
    many = [each for each in found if each.case in DISPATCHERS]
    return HEAD.format(leads=_leads(found), parts=_parts(many), times=PARTS_OF, slower=SLOWER)


def _leads(found: Sequence[Search]) -> str:
    cases = [(model, HOPS) for model in MODELS]
    cases.insert(MODELS.index(SHORT_SLO) + 1, (SHORT_SLO, SLOW_HOPS))
    rows = [[model, f"{slower(case):g}", *_lead(found, model, case)] for model, case in cases]
    head = ["model", "slower", "mix", "without hops", "with hops", "lost to idle devices"]
    return lines_of(head, rows)


def _lead(found: Sequence[Search], model: str, case: str) -> list[str]:
    here = [x for x in found if x.model == model and x.seed == 0]
    ahead, idle = (mean_qps(here, row=row, case=case) for row in ("kairos", IDLE_ONLY))
    mix = next((x.mix for x in here if x.case == case), ())
    without = mean_qps(here, row="kairos", mix=mix, case=TRACE, threshold=0)
    if ahead is None or idle is None or not without:
        return ["not run"] * 4
    lost = f"{100 * (1 - idle / ahead):.0f} %" if ahead else "-"
    return [mix_text(mix), f"{without:.0f}/s", f"{ahead / without:.2f}", lost]


def _parts(many: Sequence[Search]) -> str:
    alone = mean_qps(many, case=next(iter(DISPATCHERS)))
    rows = []
    for case in DISPATCHERS:
        qps = mean_qps(many, case=case)
        told = ["not run"] * 2
        if qps is not None and alone:
            told = [f"{qps:.0f}/s", f"{qps / alone:.3f}"]
        rows.append([case, *told])
    return lines_of(["dispatchers", "capacity", "relative to one"], rows)

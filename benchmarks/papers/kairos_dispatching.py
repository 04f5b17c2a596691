"""The section of docs/results/kairos.md about hops (K16) and several dispatchers (K18)."""

from collections.abc import Sequence

from benchmarks.papers.kairos_cases import DISPATCHERS, HOPS, TRACE
from benchmarks.papers.kairos_claims import IDLE_ONLY, PARTS_OF
from benchmarks.papers.kairos_compare import MODELS, Search
from benchmarks.papers.kairos_tables import lines_of, mean_qps, mix_text

HEAD = """\
## Hops between processes, and several dispatchers

**Lead (K16)**, one seed, on the mix ranked first. `with hops` is the capacity of `kairos` with hops
as on a local broker, relative to that without hops. `lost to idle devices` is what it loses there
if it sends to idle devices only, as in the paper (`lead: 0ms`): a device then idles for two hops
after each query. By arithmetic, at 2 ms and the mean size, the loss is 3 % of a base device's time
for rm2, 17 dien, 25 mtwnd, 33 wnd and 64 ncf.

{leads}

**Several dispatchers (K18)**, rm2, one seed, on {times} times the mix ranked first. Each dispatcher
has an equal part of the queries and of the devices of each type. The paper splits large systems in
this way and does not state the cost; the project allows a loss of 3 %.

{parts}
"""


def dispatching_section(found: Sequence[Search]) -> str:
    """Return the section about hops and dispatchers."""
    many = [each for each in found if each.case in DISPATCHERS]
    return HEAD.format(leads=_leads(found), parts=_parts(many), times=PARTS_OF)


def _leads(found: Sequence[Search]) -> str:
    rows = []
    for model in MODELS:
        here = [x for x in found if x.model == model and x.seed == 0]
        ahead, idle = (mean_qps(here, row=row, case=HOPS) for row in ("kairos", IDLE_ONLY))
        mix = next((x.mix for x in here if x.case == HOPS), ())
        without = mean_qps(here, row="kairos", mix=mix, case=TRACE, threshold=0)
        if ahead is None or idle is None or not without:
            rows.append([model, *["not run"] * 4])
            continue
        lost = f"{100 * (1 - idle / ahead):.0f} %" if ahead else "-"
        rows.append([model, mix_text(mix), f"{without:.0f}/s", f"{ahead / without:.2f}", lost])
    return lines_of(["model", "mix", "without hops", "with hops", "lost to idle devices"], rows)


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

"""Tables of certificates for a results page.

    python -m benchmarks.certificate_tables DIR

prints those of the certificates stored in DIR, such as docs/results/certificates/cluster-82591255.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from headrace.fidelity.certificate import BOUNDS, Certificate, CertifiedMetric

HEAD = (
    "| case | metric | predicted (95 %) | live | spread | error | skill | verdict |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)
NAMES = {
    "p50_ms": "p50, ms", "p95_ms": "p95, ms", "p99_ms": "p99, ms",
    "branch_violation": "branch violation, %", "violation": "query violation, %",
    "accuracy": "accuracy, %",
}  # fmt: skip


def table(found: Iterable[tuple[str, Certificate]]) -> str:
    """Return the judged metrics of named certificates as a Markdown table.

    A * marks an error above the bound that is within the spread of the live runs.
    """
    rows = [row for name, certificate in found for row in _rows(name, certificate)]
    return "\n".join([*HEAD, *(f"| {' | '.join(row)} |" for row in rows)])


def summary(certificates: Iterable[Certificate]) -> str:
    """Return how many certificates are met, and how many of their metrics are within the aim."""
    kept = list(certificates)
    judged = [m for each in kept for m in each.metrics if m.name in NAMES]
    aims = sum(m.verdict == "aim" for m in judged)
    met = sum(each.met for each in kept)
    return f"{met} of {len(kept)} certificates met, {aims} of {len(judged)} metrics within the aim"


def conditions(certificate: Certificate) -> str:
    """Return how busy the host was, and what drifted."""
    share = certificate.conditions.host_cpu_share
    drifted = "; ".join(each.sentence for each in certificate.drift if each.drifted)
    busy = "unknown" if share is None else f"{share:.0%}"
    return f"host {busy} busy; drift: {drifted or 'none'}"


def _rows(name: str, certificate: Certificate) -> Iterator[tuple[str, ...]]:
    for metric in certificate.metrics:
        if metric.name in NAMES:
            yield (name, NAMES[metric.name], *_cells(metric))
            name = ""


def _cells(metric: CertifiedMetric) -> Iterator[str]:
    relative = BOUNDS[metric.name].relative

    def shown(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.1f}" if relative else f"{value * 100:.2f}"

    yield f"{shown(metric.predicted)} ({shown(metric.low)} to {shown(metric.high)})"
    yield from (shown(metric.live), shown(metric.spread))
    if metric.error is None:
        yield "-"
    else:
        yield f"{metric.error * 100:+.1f} %" if relative else f"{metric.error * 100:+.2f} points"
    yield "-" if metric.skill is None else f"{metric.skill:.2f}"
    beyond = metric.error is not None and abs(metric.error) > BOUNDS[metric.name].must
    yield f"{metric.verdict} *" if beyond and metric.verdict == "must" else metric.verdict


def _name(certificate: Certificate) -> str:
    it = certificate.conditions
    load = it.arrivals.removeprefix("poisson-").removesuffix(".txt")
    return f"{load} of the load, `{it.policy}`, {sum(it.devices.values())} workers"


def main() -> int:
    """Print the tables of stored certificates; return the exit code."""
    (folder,) = sys.argv[1:]
    stored = sorted(Path(folder).glob("*.certificate.json"))
    found = [Certificate.from_stored(json.loads(path.read_text())) for path in stored]
    print(table((_name(each), each) for each in found))
    print(f"\n{summary(found)}\n")
    print("\n".join(f"- {_name(each)}: {conditions(each)}" for each in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

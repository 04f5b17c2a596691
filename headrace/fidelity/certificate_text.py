"""Format certificates, and their history, as text."""

from collections.abc import Iterator, Sequence

from headrace.cells import columns
from headrace.fidelity.certificate import BOUNDS, Certificate, CertifiedMetric
from headrace.fidelity.certificate_store import Kept
from headrace.fidelity.drift import drift_text

VERDICTS = {
    "aim": "within the aim", "must": "within bounds", "within floor": "within the floor only",
    "missed": "MISSED", "": "",
}  # fmt: skip
_HEAD = ("metric", "predicted", "95 %", "live", "spread", "error", "bound", "skill",
         "conditional", "")  # fmt: skip


def certificate_text(certificate: Certificate) -> str:
    """Return the metrics as a table, and the conditions."""
    lines = [_HEAD, *(_row(metric, certificate) for metric in certificate.metrics)]
    table = columns(lines, left=(0, len(_HEAD) - 1))
    return "\n".join([table, "", *_conditions(certificate)])


def _row(metric: CertifiedMetric, certificate: Certificate) -> tuple[str, ...]:
    name, bound = metric.name, BOUNDS.get(metric.name)
    limit = "" if bound is None else _signed(bound.must, name)[1:]
    return (
        name.removesuffix("_ms").replace("_", " ") + (" ms" if name.endswith("_ms") else ""),
        _value(metric.predicted, name),
        f"{_value(metric.low, name)} to {_value(metric.high, name)}",
        _value(metric.live, name),
        _value(metric.spread, name),
        "-" if metric.error is None else _signed(metric.error, name),
        limit,
        "" if metric.skill is None else f"{metric.skill:.2f}",
        _value(certificate.conditional.get(name), name),
        VERDICTS[metric.verdict],
    )


def _value(value: float | None, name: str) -> str:
    if value is None:
        return "-"
    fraction = name in BOUNDS and not BOUNDS[name].relative
    return f"{value:.2%}" if fraction else f"{value:.1f}"


def _signed(error: float, name: str) -> str:
    bound = BOUNDS.get(name)
    if bound is None:
        return f"{error:+.1f}"
    return f"{error:+.1%}" if bound.relative else f"{error * 100:+.2f} pt"


def _conditions(certificate: Certificate) -> Iterator[str]:
    it = certificate.conditions
    load = "unknown" if it.host_cpu_share is None else f"{it.host_cpu_share:.0%}"
    slower = f", time {it.dilate:g} times slower" if it.dilate != 1 else ""
    devices = ", ".join(f"{count} {device}" for device, count in it.devices.items())
    met = "no metric is missed" if certificate.met else "MISSED"
    yield f"{met}: {certificate.repeats} live runs against a prediction made before them"
    if drift := drift_text(certificate.drift):
        yield drift
    yield (
        f"predicted {certificate.predicted_at} from {it.simulations} simulations, seeds from "
        f"{it.seed}; first live run {certificate.live_started_at}; SHA-256 {certificate.sha256}"
    )
    yield (
        f"{it.queries} queries of {it.arrivals} over {it.seconds:g} s{slower}; {it.policy}, "
        f"{devices}; {it.machine}; host {load} busy; queries were sent at most "
        f"{it.behind_ms:.1f} ms late"
    )
    yield from it.notes
    if it.warm_up_s:
        yield f"the first {it.warm_up_s:g} s of the arrivals are not counted"
    yield "conditional: simulations that replay the live runs' own delays and plans; no prediction"
    if certificate.warning:
        yield certificate.warning


def history_text(kept: Sequence[Kept]) -> str:
    """Return every kept prediction in a line, oldest first."""
    head = ("predicted at", "policy", "devices", "queries/s", "p50 error", "p95 error",
            "violation error", "accuracy error", "host busy", "")  # fmt: skip
    return columns([head, *map(_past, kept)], left=(0, 1, len(head) - 1))


def _past(kept: Kept) -> tuple[str, ...]:
    found = kept.certificate
    if found is None:
        return (kept.at, *[""] * 8, "not judged: live runs interrupted")
    it, errors = found.conditions, {metric.name: metric.error for metric in found.metrics}
    load = "-" if it.host_cpu_share is None else f"{it.host_cpu_share:.0%}"
    verdict = VERDICTS[found.verdict] if kept.genuine else "invalid: prediction modified afterwards"
    return (
        found.predicted_at,
        it.policy,
        str(sum(it.devices.values())),
        f"{it.queries / max(it.seconds - it.warm_up_s, 1e-9):.0f}",
        *("-" if (error := errors.get(name)) is None else _signed(error, name)
          for name in ("p50_ms", "p95_ms", "violation", "accuracy")),
        load,
        verdict,
    )  # fmt: skip

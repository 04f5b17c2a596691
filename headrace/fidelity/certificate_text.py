"""Format a certificate as text."""

from headrace.cells import columns
from headrace.fidelity.certificate import ABSOLUTE, RELATIVE, Certificate, CertifiedMetric

VERDICTS = {"aim": "within the aim", "must": "within bounds", "missed": "MISSED", "": ""}
_HEAD = ("metric", "live", "simulated", "range", "error", "bound", "aim", "")


def text(certificate: Certificate) -> str:
    """Return the metrics as a table, and the conditions."""
    lines = [_HEAD, *(_row(metric) for metric in certificate.metrics)]
    table = columns(lines, left=(0, len(_HEAD) - 1))
    return "\n".join([table, "", *_conditions(certificate)])


def _row(metric: CertifiedMetric) -> tuple[str, ...]:
    return (
        metric.name.removesuffix("_ms").replace("_", " ") + (" ms" if metric.unit == "ms" else ""),
        _value(metric.live, metric.unit),
        _value(metric.simulated, metric.unit),
        _range(metric),
        _error(metric.error, metric, signed=True),
        _bound(metric),
        _error(metric.aim, metric),
        VERDICTS[metric.verdict],
    )


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "fraction":
        return f"{value:.2%}"
    return f"{value:.0f}" if unit == "queries" else f"{value:.1f}"


def _range(metric: CertifiedMetric) -> str:
    if metric.low == metric.high:
        return ""
    return f"{_value(metric.low, metric.unit)} to {_value(metric.high, metric.unit)}"


def _error(value: float | None, metric: CertifiedMetric, *, signed: bool = False) -> str:
    if value is None:
        return "-" if signed else ""
    sign = "+" if signed else ""
    if metric.kind == RELATIVE:
        return f"{value:{sign}.1%}"
    points = value * 100 if metric.unit == "fraction" else value
    return f"{points:{sign}.2f} pt" if metric.kind == ABSOLUTE else f"{points:{sign}g}"


def _bound(metric: CertifiedMetric) -> str:
    floor = "" if metric.floor is None else f" or {metric.floor:g} {metric.unit}"
    return _error(metric.must, metric) + floor


def _conditions(certificate: Certificate) -> list[str]:
    it = certificate.conditions
    load = "unknown" if it.host_cpu_share is None else f"{it.host_cpu_share:.0%}"
    own = "" if it.own_cpu_share is None else f" ({it.own_cpu_share:.0%} by the run itself)"
    slower = f", time {it.dilate:g} times slower" if it.dilate != 1 else ""
    devices = ", ".join(f"{count} {device}" for device, count in it.devices.items())
    lines = [
        f"{it.queries} queries of {it.arrivals} over {it.seconds:g} s"
        f"{slower}; {it.policy}, {devices}; simulated {it.simulations} times, seed {it.seed}",
        f"{it.machine}; host {load} busy{own}; a query left {it.behind_ms:.1f} ms late at worst",
    ]
    for what, figures, form in (
        ("a hop, as seen and simulated: {} of the wall", it.hop_ms, "{:g} ms"),
        ("from the end of a batch until its worker knew: {} of the wall", it.lag_ms, "{:g} ms"),
        ("a batch, by its profiled median: {}", it.stretch, "{:.2f}"),
        ("from when a batch could begin until it did: {}", it.start_ms, "{:g} ms"),
    ):
        if figures:
            shown = (f"{name} {form.format(value)}" for name, value in figures.items())
            lines.append(what.format(", ".join(shown)))
    if it.warm_up_s:
        lines.append(f"the first {it.warm_up_s:g} s are not counted")
    return lines + ([certificate.warning] if certificate.warning else [])
